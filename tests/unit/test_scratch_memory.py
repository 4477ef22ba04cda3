"""Kernels' large buffers are kept from one launch to the next."""

from __future__ import annotations

import os

import pytest
import torch
import torch.nn.functional as F
from heap import in_use

WIDTH = 3300  # its square in floats exceeds what malloc() ever keeps by itself
MOST_KEPT = 256 << 20  # csrc/host/scratch_memory.cpp
SLACK = 4 << 20  # what else a process allocates


def convolution(width: int = WIDTH):
    """Return a weight, and a call that makes a gradient of its size."""
    weight = torch.ones(width, width, 1, 1, device="npu", requires_grad=True)
    x = torch.ones(1, width, 2, 2, device="npu")

    def backward() -> None:
        weight.grad = None
        F.conv2d(x, weight).sum().backward()
        torch.npu.synchronize()

    return weight, backward


@pytest.mark.libc_heap
def test_a_kernels_buffer_serves_the_next_launch_until_the_cache_is_emptied():
    weight, backward = convolution()
    backward()
    torch.npu.empty_cache()
    nothing_kept = in_use()

    backward()
    kept = in_use()
    for _ in range(4):
        backward()

    assert kept - nothing_kept > weight.nbytes - SLACK
    assert abs(in_use() - kept) < SLACK  # none was added
    torch.npu.empty_cache()
    assert abs(in_use() - nothing_kept) < SLACK


@pytest.mark.libc_heap
def test_what_is_kept_is_bounded():
    torch.npu.empty_cache()
    nothing_kept = in_use()

    for width in range(WIDTH, WIDTH + 6 * 300, 300):  # 44 to 92 MB
        convolution(width)[1]()

    assert in_use() - nothing_kept < MOST_KEPT + SLACK


@pytest.mark.libc_heap
@pytest.mark.parametrize(
    ("largest", "widths"),
    [(1500, range(1480, 700, -60)), (1500, range(1000, 1500, 20))],
    ids=["smaller ones", "growing ones"],
)
def test_buffers_for_sizes_that_never_repeat_do_not_add_up(largest, widths):
    torch.npu.empty_cache()
    weight, backward = convolution(largest)
    backward()
    kept = in_use()

    for width in widths:
        convolution(width)[1]()

    # One for each size would be 60 MB and more.
    assert in_use() - kept < 2 * weight.nbytes


def test_a_kept_buffer_does_not_change_results():
    torch.manual_seed(0)
    x, w = torch.rand(2, 64, 40, 40), torch.rand(64, 64, 3, 3)
    expected = None

    for _ in range(3):
        weight = w.npu().requires_grad_()
        F.conv2d(x.npu(), weight, padding=1).square().sum().backward()
        assert weight.grad is not None
        if expected is None:
            expected = weight.grad.cpu()
        assert torch.equal(weight.grad.cpu(), expected)


def test_a_forked_child_may_empty_the_cache():
    convolution(400)[1]()
    child = os.fork()
    if child == 0:
        try:
            torch.npu.empty_cache()
        finally:
            os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
