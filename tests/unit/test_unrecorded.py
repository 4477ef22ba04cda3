"""Calls that autograd need not record go to the device at once; others are recorded."""

import copy
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.utils._python_dispatch import TorchDispatchMode

from npu_dispatch import _C

CALLS = {
    "add": lambda x, y: torch.add(x, y),
    "add_": lambda x, y: x.add_(y),
    "add_out": lambda x, y: torch.add(x, y, out=torch.empty_like(x)),
    "mul": lambda x, y: x * y,
    "cat": lambda x, y: torch.cat((x, y)),
    "mm": lambda x, y: x.mm(y),
    "max": lambda x, y: torch.max(x, 0),
    "where": lambda x, y: torch.where(x > y, x, y),
    "copy_": lambda x, y: x.copy_(y),
    "relu_": lambda x, _: x.relu_(),
}
WRITES = {
    "add_": lambda x, y: x.add_(y),
    "copy_": lambda x, y: x.copy_(y),
    "relu_": lambda x, _: x.relu_(),
    "mm_out": lambda x, y: torch.mm(y, y, out=x),
    "max_out": lambda x, y: torch.max(
        y, 0, out=(x[0], torch.empty(2, dtype=torch.int64, device=x.device))
    ),
}


def pair(device: str) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.tensor([[1.0, -2.0], [3.0, 0.5]])
    return x.to(device), (x.t() - 1).contiguous().to(device)


def on_both(check, *args):
    found = {device: check(device, *args) for device in ("cpu", "npu")}
    assert found["npu"] == found["cpu"]
    return found["npu"]


def tensors(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else list(value)


@pytest.mark.parametrize("name", WRITES)
@pytest.mark.parametrize("again", [1, 2], ids=["first_call", "known_call"])
def test_a_write_counts_a_version(name, again):
    def versions(device):
        x, y = pair(device)
        for _ in range(again):
            WRITES[name](x, y)
        return x._version, y._version

    assert on_both(versions)[0] >= again


# A call with out= and a gradient is refused (below).
@pytest.mark.parametrize("name", [name for name in CALLS if name != "add_out"])
@pytest.mark.parametrize("which", [0, 1])
def test_a_call_with_a_gradient_is_recorded(name, which):
    def gradients(device):
        given = pair(device)
        CALLS[name](given[0].clone(), given[1])  # known from here on
        given[which].requires_grad_()
        results = tensors(CALLS[name](given[0].clone(), given[1]))
        names = [r.grad_fn and r.grad_fn.name() for r in results]
        if results[0].requires_grad:
            results[0].sum().backward()
        found = given[which].grad
        return names, None if found is None else found.tolist()

    on_both(gradients)


@pytest.mark.parametrize("name", ["add", "mul", "mm", "cat"])
def test_a_call_without_grad_mode_records_nothing(name):
    x, y = pair("npu")
    x.requires_grad_()
    with torch.no_grad():
        assert not CALLS[name](x, y).requires_grad
    assert CALLS[name](x, y).requires_grad


@pytest.mark.parametrize("name", ["add", "mul", "mm", "cat", "add_"])
def test_a_tangent_goes_on(name):
    def tangent(device):
        x, y = pair(device)
        CALLS[name](x.clone(), y)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            result = CALLS[name](dual, y)
            return forward_ad.unpack_dual(result).tangent.tolist()

    on_both(tangent)


def test_a_write_to_a_leaf_that_needs_a_gradient_is_refused():
    def refusal(device):
        x, y = pair(device)
        x.clone().add_(y)
        with pytest.raises(RuntimeError) as error:
            x.requires_grad_().add_(y)
        with pytest.raises(RuntimeError) as of_out:
            torch.mm(y, y, out=x)
        return str(error.value), str(of_out.value)

    on_both(refusal)


def test_a_write_to_a_saved_tensor_is_noticed():
    def refusal(device):
        x, y = pair(device)
        product = x.requires_grad_() * y
        y.add_(1)
        with pytest.raises(RuntimeError) as error:
            product.sum().backward()
        return str(error.value).replace("npu:0", "").replace("NPU", "CPU")[:60]

    on_both(refusal)


def test_a_view_shares_its_versions():
    def versions(device):
        x, y = pair(device)
        view = x[0]
        for _ in range(3):
            view.add_(y[0])
        return x._version, view._version

    assert on_both(versions) == (3, 3)


def test_a_write_to_a_view_of_what_needs_a_gradient_is_recorded():
    def gradient(device):
        x, y = pair(device)
        base = x.requires_grad_() * 1
        base[0].add_(y[0]).mul_(2)
        base.sum().backward()
        return x.grad.tolist()

    on_both(gradient)


def test_an_inference_tensor_is_written_as_on_cpu():
    def outcome(device):
        with torch.inference_mode():
            x, y = pair(device)
            x.add_(y)
        normal = torch.ones_like(pair(device)[0])
        with pytest.raises(RuntimeError) as error:
            x.add_(normal)
        normal.add_(x)
        return str(error.value), normal.tolist(), normal._version

    on_both(outcome)


@pytest.mark.parametrize("name", CALLS)
def test_a_mode_sees_the_call(name):
    class Seen(TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.names = []

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            self.names.append(str(function))
            return function(*args, **(kwargs or {}))

    def names(device):
        x, y = pair(device)
        CALLS[name](x, y)
        with Seen() as seen:
            CALLS[name](x, y)
        return seen.names

    assert on_both(names)


def test_transforms_see_the_call():
    def results(device):
        x, y = pair(device)
        torch.mul(x, y)
        gradient = torch.func.grad(lambda v: torch.mul(v, y).sum())(x)
        batched = torch.func.vmap(torch.mul)(x, y)
        _, tangent = torch.func.jvp(lambda v: torch.mul(v, y), (x,), (y,))
        return gradient.tolist(), batched.tolist(), tangent.tolist()

    on_both(results)


SHAPES = [(4, 3), (1, 3), (2, 5, 3), (2, 1, 2, 3)]


def layers() -> dict[str, torch.nn.Linear]:
    torch.manual_seed(0)
    host = torch.nn.Linear(3, 2)
    return {"cpu": host, "npu": copy.deepcopy(host).to("npu")}


def inputs(*shape: int) -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    host = torch.randn(shape)
    return {"cpu": host, "npu": host.to("npu")}


def same_on_both(compute: Callable[..., list[torch.Tensor | None]], *shape: int):
    """Compute from a layer and an input; results, and how they lie, are cpu's."""
    given, modules = inputs(*shape), layers()
    host, npu = (compute(modules[device], given[device]) for device in ("cpu", "npu"))
    for wanted, found in zip(host, npu, strict=True):
        assert (wanted is None) == (found is None)
        if wanted is not None:
            assert found.stride() == wanted.stride()
            assert torch.equal(found.cpu(), wanted)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("frozen", ["", "input", "weight", "bias"])
def test_results_and_gradients_are_cpus(shape, frozen):
    def compute(layer, x):
        x.requires_grad_(frozen != "input")
        layer.weight.requires_grad_(frozen != "weight")
        layer.bias.requires_grad_(frozen != "bias")
        for _ in range(2):  # the first call, and a known one
            y = layer(x)
            (y * y).sum().backward()
        return [y.detach(), x.grad, layer.weight.grad, layer.bias.grad]

    same_on_both(compute, *shape)


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


@pytest.mark.parametrize("changed", ["input", "weight"])
def test_a_write_to_what_it_saved_is_noticed(changed):
    layer, x = layers()["npu"], inputs(4, 3)["npu"].requires_grad_()
    given = x * 1
    y = layer(given)
    with torch.no_grad():
        (given if changed == "input" else layer.weight).add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


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
    def compute(layer, x):
        y = call(x.requires_grad_(), layer.weight, layer.bias)
        y.sum().backward()
        return [y.detach(), x.grad, layer.weight.grad]

    same_on_both(compute, 4, 3)
