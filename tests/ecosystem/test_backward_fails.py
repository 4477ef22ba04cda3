"""A backward that fails leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from torch.utils.checkpoint import checkpoint

MIB = 1 << 20


def refuse(_: torch.Tensor) -> None:
    raise ValueError("a hook refuses")


def fail(x: torch.Tensor) -> None:
    """Run a backward that fails when gradients of 32 MiB wait for their turn."""
    parts = [x * i for i in range(1, 9)]
    sums = [part.exp() for part in parts]
    sums[-1].register_hook(refuse)
    with pytest.raises(ValueError, match="a hook refuses"):
        torch.stack(sums).sum().backward()


def leaf() -> torch.Tensor:
    return torch.zeros(MIB, device="npu", requires_grad=True)


def kept(run: Callable[[], None]) -> int:
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    run()
    torch.npu.synchronize()
    return torch.npu.memory_allocated() - before


def test_its_gradients_are_freed():
    x = leaf()
    assert kept(lambda: fail(x)) == 0
    (x * 3).sum().backward()
    assert x.grad[0].item() == 3


def test_they_are_freed_in_another_thread():
    x = leaf()

    def run() -> None:
        thread = threading.Thread(target=fail, args=(x,))
        thread.start()
        thread.join()

    assert kept(run) == 0


def test_torch_autograd_grad_frees_them_as_well():
    x = leaf()

    def run() -> None:
        parts = [(x * i).exp() for i in range(1, 9)]
        parts[-1].register_hook(refuse)
        with pytest.raises(ValueError, match="a hook refuses"):
            torch.autograd.grad(torch.stack(parts).sum(), x)

    assert kept(run) == 0


def test_one_inside_of_another_leaves_the_outer_one_alone():
    """What a checkpoint computes again fails, and somebody catches that."""
    x = leaf()

    class Careful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y * 1

        @staticmethod
        def backward(ctx, grad):
            inner = torch.zeros(MIB, device="npu", requires_grad=True)
            with torch.enable_grad():
                fail(inner)
            return grad

    y = Careful.apply(x) + checkpoint(lambda z: z * 2, x, use_reentrant=False)
    y.sum().backward()
    assert x.grad[0].item() == 3


def test_a_choice_of_autograds_threads_stands(python):
    python("""
import torch

with torch.autograd.set_multithreading_enabled(True):
    x = torch.ones(2, device="npu", requires_grad=True)  # the thread's first call
    (x * 2).sum().backward()
    assert torch._C._is_multithreading_enabled()
assert not torch._C._is_multithreading_enabled()
assert x.grad.tolist() == [2, 2]
""")
