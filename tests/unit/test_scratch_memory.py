"""Kernels' large buffers are kept from one launch to the next."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import torch
import torch.nn.functional as F

PAGE = resource.getpagesize()
WIDTH = 3300  # its square in floats exceeds what malloc() ever keeps by itself


def convolution(width: int = WIDTH):
    """Return a weight, and a call that makes a gradient of its size."""
    weight = torch.ones(width, width, 1, 1, device="npu", requires_grad=True)
    x = torch.ones(1, width, 2, 2, device="npu")

    def backward() -> None:
        weight.grad = None
        F.conv2d(x, weight).sum().backward()
        torch.npu.synchronize()

    return weight, backward


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def test_a_kernel_that_allocates_does_not_touch_fresh_pages_at_each_launch():
    weight, backward = convolution()
    backward()
    backward()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(4):
        backward()
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert faults < weight.nbytes / PAGE


def test_empty_cache_gives_kept_buffers_back():
    weight, backward = convolution()
    backward()
    torch.npu.empty_cache()
    backward()
    resident, reserved = resident_bytes(), torch.npu.memory_reserved()

    torch.npu.empty_cache()

    returned = resident - resident_bytes()
    of_the_device = reserved - torch.npu.memory_reserved()
    assert returned - of_the_device > 0.9 * weight.nbytes


def test_what_is_kept_is_bounded():
    torch.npu.empty_cache()
    resident, reserved = resident_bytes(), torch.npu.memory_reserved()

    for width in range(WIDTH, WIDTH + 12 * 300, 300):  # 44 to 174 MB
        convolution(width)[1]()

    grown = resident_bytes() - resident
    of_the_device = torch.npu.memory_reserved() - reserved
    assert grown - of_the_device < 600 << 20


def test_buffers_for_sizes_that_never_repeat_do_not_add_up():
    torch.npu.empty_cache()
    largest, backward = convolution(1500)
    backward()
    resident, reserved = resident_bytes(), torch.npu.memory_reserved()

    for width in range(1480, 700, -60):  # a buffer of another size for each
        convolution(width)[1]()

    grown = resident_bytes() - resident
    of_the_device = torch.npu.memory_reserved() - reserved
    assert grown - of_the_device < largest.nbytes


def test_buffers_for_sizes_that_grow_do_not_add_up(python):
    # In a process without the heap of other tests.
    home = str(Path(__file__).parent)
    python(
        f"import sys; sys.path.append({home!r}); import {Path(__file__).stem} as t\n"
        "t.grow()"
    )


def grow():
    resident, reserved = resident_bytes(), torch.npu.memory_reserved()

    for width in range(1000, 1500, 20):  # each needs a larger buffer
        largest, backward = convolution(width)
        backward()

    grown = resident_bytes() - resident
    of_the_device = torch.npu.memory_reserved() - reserved
    assert grown - of_the_device < 4 * largest.nbytes


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
