"""Compiled functions on the device beside the same functions on cpu."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree


@pytest.fixture(autouse=True)
def fresh_dynamo():
    """Start a test with no compiled code, so that none recompiles for another."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def clones(arguments: Any, device: str, grad: bool = True) -> Any:
    """Copy all tensors to the device; floating ones get gradients."""

    def clone(value: Any) -> Any:
        if isinstance(value, torch.nn.Module):
            return copy.deepcopy(value).to(device)
        if not isinstance(value, torch.Tensor):
            return value
        made = torch.empty_strided(
            value.shape, value.stride(), dtype=value.dtype, device=device
        )
        made.copy_(value.detach())
        floating = value.is_floating_point() or value.is_complex()
        return made.requires_grad_(grad and value.requires_grad and floating)

    return pytree.tree_map(clone, arguments)


def tensors(value: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(value) if isinstance(t, torch.Tensor)]


def outcome(
    function: Callable[..., Any], arguments: Any, modules: Iterable[Any] = ()
) -> dict[str, Any]:
    """Call, then run backward; give results, gradients and changed arguments."""
    result = function(*arguments)
    outs = tensors(result)
    sources = [t for t in outs if t.requires_grad]
    if sources:
        sum(t.abs().pow(2).sum() for t in sources).backward()  # type: ignore[union-attr]
    inputs = tensors(arguments)
    inputs += [p for m in modules for p in m.parameters()]
    return {
        "results": [t.detach().cpu() for t in outs],
        "strides": [t.stride() for t in outs],
        "gradients": [t.grad.cpu() for t in inputs if t.grad is not None],
        "arguments": [t.detach().cpu() for t in inputs],
        "buffers": [b.cpu() for m in modules for b in m.buffers()],
    }


def check_as_on_cpu(
    function: Callable[..., Any],
    *arguments: Any,
    grad: bool = True,
    tolerance: dict[str, float] | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """Compare the compiled function on npu with it uncompiled on cpu.

    Return the compiled one.
    """
    compiled = torch.compile(function, **options)
    on_cpu = outcome(function, clones(arguments, "cpu", grad))
    on_npu = outcome(compiled, clones(arguments, "npu", grad))
    torch.testing.assert_close(on_npu, on_cpu, **(tolerance or {}))
    return compiled
