"""Tensors of several places in one call: host scalars, masks, devices by name."""

from __future__ import annotations

import pytest
import torch

from tests.ecosystem.both import outcome


def test_a_scalar_of_the_host_in_a_list_is_written_once_per_call():
    device, scalar = torch.ones(3).npu(), torch.tensor(1.0)
    for expected in (2.0, 3.0, 4.0):
        torch._foreach_add_([device, scalar], 1)
        doubled = torch._foreach_mul([device, scalar], 2.0)
        assert (scalar.item(), doubled[1].item()) == (expected, 2 * expected)
        assert (device.tolist(), doubled[0].tolist()) == (
            [expected] * 3,
            [2 * expected] * 3,
        )


def test_reading_a_scalar_of_the_host_leaves_it_alone():
    x, scalar = torch.ones(3).npu(), torch.tensor(2.0)
    for _ in range(2):
        torch._foreach_mul_([x], [scalar])
        x.add_(scalar)
    assert scalar.item() == 2.0
    assert x.tolist() == [10.0] * 3


def test_a_scalar_of_the_host_is_not_written_by_a_kernel_of_the_device():
    x, scalar = torch.ones(()).npu(), torch.tensor(1.0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="same device"):
            scalar.add_(x)
        with pytest.raises(RuntimeError, match="same device"):
            torch.add(x, x, out=scalar)
    assert scalar.item() == 1.0


@pytest.mark.parametrize("non_blocking", [False, True])
def test_foreach_copy_between_host_and_device(non_blocking):
    host = [torch.arange(4.0), torch.ones(2, 3)]
    device = [torch.empty(4).npu(), torch.empty(2, 3).npu()]

    torch._foreach_copy_(device, host, non_blocking)
    back = [torch.zeros(4), torch.zeros(2, 3)]
    torch._foreach_copy_(back, device)

    assert all(torch.equal(b, h) for b, h in zip(back, host, strict=True))
    with pytest.raises(RuntimeError, match=r"number of tensors|length"):
        torch._foreach_copy_(device, host[:1])


MASKED = {
    "one mask": lambda x, m, v: x[m],
    "a mask of two dimensions": lambda x, m, v: x[:, m[:3, None].expand(3, 4)],
    "a mask and a number": lambda x, m, v: x[m[:2], :, 1],
    "a mask after all": lambda x, m, v: x[:, m[:3]],
    "a byte mask": lambda x, m, v: x[m[:2].to(torch.uint8)],
    "written": lambda x, m, v: x.index_put((m[:2],), v),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_mask_of_the_host_does_not_wait(name):
    x = torch.arange(24.0).reshape(2, 3, 4)
    mask, value = torch.tensor([True, False, True]), torch.tensor(-1.0)
    call = MASKED[name]
    if name == "one mask":
        mask = torch.tensor([True, False])
    expected, own, number = call(x, mask, value), x.npu(), value.npu()
    call(own, mask, number)
    with torch.npu.sync_guard("error"):
        got = call(own, mask, number)
    torch.testing.assert_close(got.cpu(), expected)


def test_a_mask_that_does_not_fit_is_refused_as_on_cpu():
    x, mask = torch.ones(2, 3), torch.tensor([True, False, True])
    assert outcome(x.npu().__getitem__, mask) == outcome(x.__getitem__, mask)


FACTORIES = """
import torch
for _ in range(2):
    for t in (
        torch.tril_indices(3, 3, device="npu:1"),
        torch.triu_indices(3, 3, device="npu:1"),
        torch.arange(3, device="npu:1"),
        torch.linspace(0, 1, 3, device="npu:1"),
        torch.randperm(4, device="npu:1"),
        torch.eye(2, device="npu:1"),
        torch.hann_window(3, device="npu:1"),
        torch.rand(2, device="npu:1"),
    ):
        assert t.device == torch.device("npu:1"), t.device
assert torch.tril_indices(3, 3, device="npu").device.index == 0
with torch.npu.device(1):
    assert torch.tril_indices(3, 3, device="npu").device.index == 1
    assert torch.tril_indices(3, 3, device="npu:0").device.index == 0

for layout in (torch.sparse_coo, torch.sparse_csr):
    x = torch.eye(3, device="npu:1").to_sparse(layout=layout)
    assert x.device.index == 1 and x.values().device.index == 1
    assert torch.equal(x.to_dense().cpu(), torch.eye(3))
i = torch.tensor([[0, 1], [1, 0]], device="npu:1")
v = torch.ones(2, device="npu:1")
s = torch.sparse_coo_tensor(i, v, (2, 2), device="npu:1")
assert s.coalesce().device.index == 1
assert (s + s).to_dense().cpu().tolist() == [[0, 2], [2, 0]]
assert torch.sparse.sum(s, 0).to_dense().tolist() == [1, 1]
e = torch.sparse_coo_tensor((2, 2), device="npu:1")
assert e.device.index == 1 and e._values().device.index == 1
assert s.clone().device.index == 1
assert s.cpu().to("npu:1")._indices().device.index == 1
print("ok")
"""


def test_the_named_device_is_where_a_factory_makes_its_tensor(python):
    assert python(FACTORIES, NPU_DISPATCH_DEVICES="2").stdout.strip() == "ok"
