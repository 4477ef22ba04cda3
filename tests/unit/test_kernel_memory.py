"""Kernels find their results' memory, and keep large buffers for the next launch."""

import os

import pytest
import torch
import torch.nn.functional as F
from heap import in_use

N = 1 << 16  # 256 KiB of float32: large enough to be offered

library = torch.library.Library("result_memory_test", "DEF")


def backwards(x):
    second = x * 3
    first = x * 2
    return [first, second]


def with_scratch(x):
    scratch = torch.empty_like(x)
    scratch.copy_(x)
    scratch += 1
    return [scratch * 2]


def as_view(x):
    return [(x.view(256, 256) * 2).t()]


def part_of_another(x):
    whole = x * 2
    return [whole, whole.flip(0)]


def the_same_twice(x):
    y = x + 1
    return [y, y.view(256, 256).t().reshape(-1)]


def two_metas(x):
    return [torch.empty_like(x), torch.empty_like(x)]


# Name: kernel, meta kernel. All take a tensor and return a list.
KERNELS = {
    "backwards": (backwards, two_metas),
    "with_scratch": (with_scratch, lambda x: [torch.empty_like(x)]),
    "as_view": (as_view, lambda x: [x.new_empty_strided((256, 256), (1, 256))]),
    "as_packed": (as_view, lambda x: [x.new_empty((256, 256))]),
    "part_of_another": (part_of_another, two_metas),
    "the_same_twice": (the_same_twice, two_metas),
}
for name, (kernel, meta) in KERNELS.items():
    library.define(f"{name}(Tensor x) -> Tensor[]")
    library.impl(name, kernel, "CPU")
    library.impl(name, meta, "Meta")


@pytest.mark.parametrize("name", KERNELS)
def test_results_are_right(name):
    op = getattr(torch.ops.result_memory_test, name)
    x = torch.rand(N)
    expected = op(x)
    device_x = x.npu()

    for _ in range(3):  # the first call of its kind is different
        found = op(device_x)
        torch.testing.assert_close([t.cpu() for t in found], expected, rtol=0, atol=0)


def test_lists_of_results():
    xs = [torch.rand(n) for n in (N, N, 3, 2 * N, N)]
    expected = torch._foreach_sqrt(xs)
    device_xs = [x.npu() for x in xs]

    for _ in range(3):
        found = torch._foreach_sqrt(device_xs)
        for a, b in zip(found, expected, strict=True):
            assert torch.equal(a.cpu(), b)


def test_large_results_are_not_copied():
    """Fresh pages are not touched: the kernel writes where the result lies."""

    def faults():
        with open("/proc/self/stat") as stat:  # noqa: PTH123
            return int(stat.read().rpartition(")")[2].split()[7])

    xs = [torch.rand(1 << 20).npu() for _ in range(8)]  # 32 MiB

    def run():
        torch._foreach_sqrt(xs)
        torch.npu.synchronize()

    for _ in range(3):
        run()
    before = faults()
    for _ in range(4):
        run()

    # Copied, each run would touch 8192 pages, or 64 huge ones.
    assert faults() - before < 4 * 32


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


def test_a_forked_child_may_empty_the_cache():
    convolution(400)[1]()
    child = os.fork()
    if child == 0:
        try:
            torch.npu.empty_cache()
        finally:
            os._exit(0)

    assert os.waitpid(child, 0)[1] == 0
