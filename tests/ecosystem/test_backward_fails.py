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


def backward(loss: torch.Tensor, _: torch.Tensor) -> None:
    loss.backward()


def fail(x: torch.Tensor, ask: Callable[..., object] = backward) -> None:
    """Run a backward that fails when gradients of 32 MiB wait for their turn."""
    sums = [(x * i).exp() for i in range(1, 9)]
    sums[-1].register_hook(refuse)
    with pytest.raises(ValueError, match="a hook refuses"):
        ask(torch.stack(sums).sum(), x)


def in_a_thread(x: torch.Tensor) -> None:
    thread = threading.Thread(target=fail, args=(x,))
    thread.start()
    thread.join()


def leaf() -> torch.Tensor:
    return torch.zeros(MIB, device="npu", requires_grad=True)


def kept(run: Callable[[], None]) -> int:
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    run()
    torch.npu.synchronize()
    return torch.npu.memory_allocated() - before


@pytest.mark.parametrize(
    "run",
    [fail, in_a_thread, lambda x: fail(x, torch.autograd.grad)],
    ids=["backward", "in another thread", "torch.autograd.grad"],
)
def test_its_gradients_are_freed(run: Callable[[torch.Tensor], None]):
    x = leaf()
    assert kept(lambda: run(x)) == 0
    (x * 3).sum().backward()
    assert x.grad[0].item() == 3


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
