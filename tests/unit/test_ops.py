"""Operators on npu against the same operators on cpu."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn


def same(on_npu, on_cpu):
    torch.testing.assert_close(on_npu.cpu(), on_cpu, rtol=0, atol=0)


def both(function, *tensors):
    """Run on both devices and compare every result bit for bit."""
    expected = function(*tensors)
    got = function(*(t.npu() for t in tensors))
    if isinstance(expected, torch.Tensor):
        expected, got = [expected], [got]
    for g, e in zip(got, expected, strict=True):
        assert g.device.type == "npu"
        same(g, e)


@pytest.mark.parametrize("value", [1, 2.5, -3, 0.1])
def test_a_known_call_takes_new_scalars(value):
    a, b = torch.rand(4, 4), torch.rand(4, 4)

    both(lambda x, y: torch.add(x, y, alpha=value), a, b)
    both(lambda x, y: torch.addcmul(x, x, y, value=value), a, b)


def test_dtype_and_shape_changes_are_other_calls():
    for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
        for shape in ((3,), (2, 3), (1, 3), (0, 3)):
            both(lambda x, y: x * y, torch.ones(shape, dtype=dtype), torch.ones(3))


def test_strides_of_results_are_those_of_cpu():
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)

    assert (x.npu() + 1).stride() == (x + 1).stride()
    assert (
        torch.relu(x.npu().transpose(1, 2)).stride()
        == torch.relu(x.transpose(1, 2)).stride()
    )


def test_a_queued_task_does_not_see_later_changes_of_its_tensors_shape():
    x = torch.arange(6.0).npu()
    y = x + 1

    x.resize_(2, 2)
    x.t_()

    same(y, torch.arange(6.0) + 1)


def test_out_is_resized_and_written():
    out = torch.empty(0).npu()
    a = torch.rand(3, 3)

    torch.mm(a.npu(), a.npu(), out=out)

    same(out, a @ a)


def test_data_dependent_shapes():
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])

    both(torch.nonzero, x)
    both(lambda t: t[t > 0], x)
    both(torch.unique, x)


def test_host_indices_are_accepted():
    x = torch.rand(5, 3)

    same(x.npu()[torch.tensor([4, 0])], x[torch.tensor([4, 0])])


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
        ),
        lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, 7)),
    ],
    ids=["conv", "linear"],
)
def test_gradients(make):
    torch.manual_seed(0)
    model = make()
    twin = copy.deepcopy(model).npu()
    x = torch.rand(3, 2, 8, 8)

    model(x).pow(2).sum().backward()
    twin(x.npu()).pow(2).sum().backward()

    for p, q in zip(model.parameters(), twin.parameters(), strict=True):
        # Sums over several threads, in another order.
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU])
def test_recurrent_layers(cell):
    torch.manual_seed(0)
    layer = cell(3, 5)
    twin = copy.deepcopy(layer).npu()
    x = torch.rand(4, 2, 3)

    expected, got = layer(x)[0], twin(x.npu())[0]
    expected.sum().backward()
    got.sum().backward()

    torch.testing.assert_close(got.cpu(), expected)
    for p, q in zip(layer.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(q.grad.cpu(), p.grad)


@pytest.mark.parametrize("causal", [False, True])
def test_attention(causal):
    torch.manual_seed(0)
    q = torch.rand(2, 3, 8, 4)

    both(lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=causal), q)


@pytest.mark.parametrize(
    "options", [{"foreach": True}, {"foreach": False}, {"fused": True}]
)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW])
def test_optimizers(kind, options):
    values = torch.rand(4, 3)
    results = []
    for device in ("cpu", "npu"):
        p = nn.Parameter(values.clone().to(device))
        optimizer = kind([p], lr=0.1, **options)
        for step in range(3):
            p.grad = torch.full_like(p, step + 1.0)
            optimizer.step()
        results.append(p.detach().cpu())

    torch.testing.assert_close(results[1], results[0])


def test_an_operator_of_a_library_runs_through_its_meta_kernel():
    with torch.library._scoped_library("npu_test", "DEF") as library:
        library.define("twice(Tensor x, float by) -> Tensor")
        library.impl("twice", lambda x, by: x * by, "CPU")
        library.impl("twice", lambda x, by: torch.empty_like(x), "Meta")
        x = torch.rand(5)

        same(torch.ops.npu_test.twice(x.npu(), 3.0), x * 3.0)
        same(torch.ops.npu_test.twice(x.npu(), 4.0), x * 4.0)
        torch.npu.synchronize()


def test_more_calls_than_the_table_of_plans_holds():
    for n in range(1, 40):
        for m in range(1, 4):
            x = torch.ones(n, m).npu()
            assert (x + n).sum().item() == n * m * (n + 1)


def test_copies_in_all_directions():
    x = torch.rand(6, 5)
    on_npu = x.npu()

    same(on_npu.t(), x.t())
    same(on_npu.to(torch.float64), x.to(torch.float64))
    same(on_npu[::2, 1:].clone(), x[::2, 1:])
    pinned = torch.empty(6, 5).pin_memory()
    pinned.copy_(on_npu, non_blocking=True)
    torch.npu.synchronize()
    torch.testing.assert_close(pinned, x)
    gaps = torch.zeros(6, 10).npu()
    gaps[:, ::2].copy_(x)
    same(gaps[:, ::2], x)
    big = torch.rand(3000, 1000)
    same(big.npu(), big)


def test_a_pageable_source_may_be_reused_at_once():
    x = torch.ones(100_000)
    on_npu = x.to("npu", non_blocking=True)

    x.zero_()

    assert on_npu.sum().item() == 100_000


def test_complex_conjugate_and_negative_views():
    x = torch.randn(4, dtype=torch.complex64)

    same(x.npu().conj(), x.conj().resolve_conj())
    both(lambda t: t.conj() * 2, x)
    same(x.npu().conj().imag.clone(), x.conj().imag.clone())


def test_saved_tensors_come_back_to_their_device(tmp_path):
    x = torch.rand(3).npu()
    torch.save({"x": x}, tmp_path / "x.pt")

    same(torch.load(tmp_path / "x.pt")["x"], x.cpu())
    assert torch.load(tmp_path / "x.pt")["x"].device.type == "npu"
    assert torch.load(tmp_path / "x.pt", map_location="cpu")["x"].device.type == "cpu"


def test_ctrl_c_inside_a_meta_kernel_ends_the_call():
    def interrupted(x):
        raise KeyboardInterrupt

    with torch.library._scoped_library("npu_interrupted", "DEF") as library:
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: x.clone(), "CPU")
        library.impl("op", interrupted, "Meta")

        with pytest.raises(KeyboardInterrupt):
            torch.ops.npu_interrupted.op(torch.ones(2).npu())
