"""A linear layer is one task and one node of autograd's graph, with cpu's numbers."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad

from npu_dispatch import _C

SHAPES = [(4, 3), (1, 3), (2, 5, 3), (2, 1, 2, 3)]


def layers() -> dict[str, torch.nn.Linear]:
    torch.manual_seed(0)
    host = torch.nn.Linear(3, 2)
    return {"cpu": host, "npu": copy.deepcopy(host).to("npu")}


def inputs(*shape: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    host = torch.randn(shape)
    return {"cpu": host, "npu": host.to("npu")}


def assert_same(found: dict[str, list[torch.Tensor | None]]) -> None:
    for host, device in zip(found["cpu"], found["npu"], strict=True):
        assert (host is None) == (device is None)
        if host is not None:
            assert device.shape == host.shape
            assert device.stride() == host.stride()
            assert torch.equal(device.cpu(), host)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("frozen", ["", "input", "weight", "bias"])
def test_results_and_gradients_are_cpus(shape, frozen):
    found = {}
    given, modules = inputs(*shape), layers()
    for device, layer in modules.items():
        x = given[device].requires_grad_(frozen != "input")
        layer.weight.requires_grad_(frozen != "weight")
        layer.bias.requires_grad_(frozen != "bias")
        for _ in range(2):  # the first call, and a known one
            y = layer(x)
            (y * y).sum().backward()
        found[device] = [y.detach(), x.grad, layer.weight.grad, layer.bias.grad]
    assert_same(found)


def test_it_is_one_node():
    layer, x = layers()["npu"], inputs(2, 5, 3)["npu"]
    node = layer(x).grad_fn
    assert node.name() == "LinearBackward0"
    names = [after.name() for after, _ in node.next_functions if after]
    assert names == ["torch::autograd::AccumulateGrad"] * 2


def test_a_known_layer_is_one_task():
    layer, x = layers()["npu"], inputs(2, 5, 3)["npu"]
    layer(x)
    before = _C.stream_tail(0, 0)
    layer(x)
    assert _C.stream_tail(0, 0) == before + 1


def test_a_gradient_of_gradients_is_cpus():
    found = {}
    given, modules = inputs(2, 5, 3), layers()
    for device, layer in modules.items():
        x = given[device].requires_grad_()
        loss = (layer(x) ** 3).sum()
        (first,) = torch.autograd.grad(loss, x, create_graph=True)
        second = torch.autograd.grad((first**2).sum(), [x, layer.weight])
        found[device] = [first.detach(), *second]
    for host, device in zip(found["cpu"], found["npu"], strict=True):
        torch.testing.assert_close(device.cpu(), host, rtol=0, atol=0)


@pytest.mark.parametrize("changed", ["input", "weight"])
def test_a_write_to_what_it_saved_is_noticed(changed):
    layer, x = layers()["npu"], inputs(4, 3)["npu"].requires_grad_()
    given = x * 1
    y = layer(given)
    with torch.no_grad():
        (given if changed == "input" else layer.weight).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_second_backward_is_refused():
    layer, x = layers()["npu"], inputs(4, 3)["npu"]
    y = layer(x).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.backward()


@pytest.mark.parametrize(
    "call",
    {
        "without_bias": lambda x, w, b: F.linear(x, w),
        "vector": lambda x, w, b: F.linear(x[0], w, b),
        "one_bias": lambda x, w, b: F.linear(x, w, b[:1]),
        "transposed": lambda x, w, b: F.linear(x.t().contiguous().t(), w, b),
        "weight_transposed": lambda x, w, b: F.linear(x, w.t().contiguous().t(), b),
        "no_rows": lambda x, w, b: F.linear(x[:0], w, b),
    }.values(),
)
def test_what_is_no_plain_layer_is_as_on_cpu(call):
    found = {}
    given, modules = inputs(4, 3), layers()
    for device, layer in modules.items():
        x = given[device].requires_grad_()
        y = call(x, layer.weight, layer.bias)
        y.sum().backward()
        found[device] = [y.detach(), x.grad, layer.weight.grad]
    assert_same(found)


def test_a_tangent_goes_through_it():
    found = {}
    given, modules = inputs(4, 3), layers()
    for device, layer in modules.items():
        x = given[device]
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            result = layer(dual)
            found[device] = [forward_ad.unpack_dual(result).tangent.detach()]
    assert_same(found)
