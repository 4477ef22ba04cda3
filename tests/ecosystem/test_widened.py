"""Dtypes that only CUDA's kernels take are computed, and nobody waits for it."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.ecosystem.both import same


def counts_of_experts(chosen, experts):
    """Count tokens per expert as layers that mix experts do on a GPU."""
    return torch.histc(chosen.int(), bins=experts, min=0, max=experts - 1)


def test_a_layer_of_experts_waits_for_nothing():
    torch.manual_seed(0)
    chosen = torch.randint(0, 4, (12,))
    weights = torch.randn(4, 3, 3)
    x = torch.randn(12, 3)

    def layer(x, chosen, weights):
        order = chosen.argsort(stable=True)
        ends = counts_of_experts(chosen, 4).cumsum(0)
        places = torch.arange(12, device=x.device)
        expert = (places[:, None] >= ends).sum(1)
        return torch.bmm(x[order][:, None], weights[expert])[:, 0], ends

    on_npu = [t.npu() for t in (x, chosen, weights)]
    layer(*on_npu)
    with torch.npu.sync_guard("error"):
        out, ends = layer(*on_npu)
    assert ends.tolist() == torch.bincount(chosen, minlength=4).cumsum(0).tolist()
    order = chosen.argsort(stable=True)
    expected = torch.bmm(x[order][:, None], weights[chosen[order]])[:, 0]
    torch.testing.assert_close(out.cpu(), expected)


def test_in_a_graph():
    static = torch.zeros(6, dtype=torch.int32, device="npu")
    counts_of_experts(static, 4)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        counts = counts_of_experts(static, 4)
    for values in ([0, 1, 1, 3, 3, 3], [2, 2, 2, 2, 0, 0]):
        static.copy_(torch.tensor(values, dtype=torch.int32))
        graph.replay()
        assert counts.tolist() == [values.count(i) for i in range(4)]


DIFFERENTIABLE = {
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), (1, 2, 4, 4, 4)),
    "multi_margin_loss": (
        lambda x: F.multi_margin_loss(x, torch.tensor([1, 0, 2], device=x.device)),
        (3, 4),
    ),
    "multilabel_margin_loss": (
        lambda x: F.multilabel_margin_loss(
            x, torch.tensor([[1, 0, -1, 2]] * 3, device=x.device)
        ),
        (3, 4),
    ),
    "antialiased": (
        lambda x: F.interpolate(x, (3, 3), mode="bilinear", antialias=True),
        (1, 2, 6, 6),
    ),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_training_in_16_bits(name, dtype):
    function, shape = DIFFERENTIABLE[name]
    torch.manual_seed(0)
    values = torch.randn(shape).to(dtype)
    results = []
    for x in (values.npu(), values.float()):
        x.requires_grad_()
        out = function(x)
        (gradient,) = torch.autograd.grad(out.square().sum(), x)
        results.append([out.detach(), gradient])

    for got, expected in zip(*results, strict=True):
        assert got.dtype == dtype
        within = 5e-3 if dtype == torch.float16 else 5e-2
        torch.testing.assert_close(
            got.float().cpu(), expected, rtol=within, atol=within
        )


def test_what_no_device_has_is_still_refused_in_the_words_of_cpu():
    for call in (torch.neg, torch.Tensor.sigmoid_):
        same(call, torch.ones(3, dtype=torch.bool))


def test_an_operator_without_a_kernel_on_the_host_is_refused_by_the_call():
    q = torch.randn(1, 4, 2, 8, dtype=torch.float16, device="npu")
    with pytest.raises(NotImplementedError, match="_flash_attention_forward"):
        torch.ops.aten._flash_attention_forward(
            q, q, q, None, None, 4, 4, 0.0, False, False
        )
    torch.npu.synchronize()
