"""Functions that replay graphs of their own: what is held is not overwritten."""

from __future__ import annotations

import gc

import pytest
import torch
from counted_replays import Counted
from torch import Tensor


def deep(x: Tensor) -> Tensor:
    """Return a product; what it computes on the way is free when it ends."""
    return (x @ x).sin() @ (x + 1).cos()


def wide(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x @ x, x.cos(), x.sin() + 1


def matrix(seed: int) -> Tensor:
    return torch.randn(48, 48, generator=torch.Generator().manual_seed(seed))


def same(got: Tensor, want: Tensor) -> None:
    torch.testing.assert_close(got.cpu(), want, rtol=1e-4, atol=1e-3)


def test_the_third_call_and_later_ones_replay():
    function = Counted(deep)
    for i in range(5):
        same(function(matrix(i).npu()), deep(matrix(i)))

    assert function.calls == 2  # the first call, and the capture in the second
    assert not function.said


def test_one_function_does_not_overwrite_what_is_held_of_another():
    first, second = Counted(deep), Counted(wide)
    for i in range(6):
        x = matrix(i)
        one, two = first(x.npu()), second(x.npu())
        first(matrix(i + 1).npu())
        for got, want in zip(two, wide(x), strict=True):
            same(got, want)
        same(one, deep(x))

    # What the second one returned lies where the first one computes, so that this
    # needs another graph; and a third one, while its own result is held as well.
    assert first.calls <= 4
    calls = first.calls
    del one, two, got
    first(x.npu())
    assert first.calls == calls


def test_results_outlive_the_function_that_made_them():
    first, second = Counted(deep), Counted(wide)
    x = matrix(0)
    here = x.npu()
    for _ in range(3):
        first(here)
        results = second(here)
    del second
    gc.collect()

    for i in range(3):
        first(matrix(i).npu())
        for got, want in zip(results, wide(x), strict=True):
            same(got, want)
    del results, got
    calls = first.calls
    for i in range(3):
        same(first(matrix(i).npu()), deep(matrix(i)))
    assert first.calls == calls


def test_memory_of_functions_that_are_gone_is_used_again():
    def grown() -> int:
        function = Counted(lambda x: (x + 1, x + 2))
        x = torch.zeros(1 << 20, device="npu")
        for _ in range(3):
            function(x)
        del function
        gc.collect()
        torch.npu.synchronize()
        return torch.npu.memory_reserved()

    keeps_the_pool = Counted(lambda x: x + 1)
    for _ in range(3):
        keeps_the_pool(torch.zeros(1 << 20, device="npu"))
    once = [grown() for _ in range(2)][-1]

    assert grown() == grown() == once


def the_captures() -> torch.npu.Stream:
    """Return the stream that captures run on; streams of a pool come round."""
    wanted = torch.npu.graph.capture_stream_of(0).stream_id
    while (stream := torch.npu.Stream()).stream_id != wanted:
        pass
    return stream


@pytest.mark.parametrize("stream", [torch.npu.Stream, the_captures])
@pytest.mark.parametrize("others", [False, True], ids=["its own", "another's"])
def test_what_another_stream_still_reads_is_not_overwritten(stream, others):
    """By later calls of the function, or of another one that computes there."""
    function = Counted(lambda x: x * 2)
    other = Counted(lambda x: (x + 1).sin() * 0 + x) if others else function
    side, size = stream(), 1 << 20
    for i in range(5):
        x = torch.full((size,), float(i), device="npu")
        if others:
            other(x)
        y = function(x)
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            slow = torch.zeros(size, device="npu")
            for _ in range(20):
                slow.sin_()
            read = y + slow
        y.record_stream(side)
        del y
        other(torch.full((size,), -1.0, device="npu"))

        torch.npu.current_stream().wait_stream(side)
        assert read.min().item() == read.max().item() == 2.0 * i
    assert others or function.calls == 2


def test_a_result_that_comes_twice_is_one_tensor():
    def twice(x: Tensor) -> tuple[Tensor, ...]:
        y = x + 1
        return y, y, y[0], x

    function = Counted(twice)
    for i in range(5):
        x = torch.full((2, 3), float(i), device="npu")
        one, two, row, back = function(x)
        assert one is two and row is not one
        assert one.tolist() == [[i + 1.0] * 3] * 2
        assert row.tolist() == [i + 1.0] * 3
        assert back.tolist() == [[float(i)] * 3] * 2
        version = one._version
        two.add_(1)
        assert one._version == version + 1


def test_shapes_of_today_replace_those_of_yesterday():
    function = Counted(lambda x: x.sin() + 1)
    for n in range(1, 41):
        for _ in range(70):  # nothing is held
            function(torch.zeros(n, device="npu"))
        assert function(torch.zeros(n, device="npu")).tolist() == [1.0] * n
    calls = function.calls
    assert calls == 80

    for n in (40, 30, 9):  # the latest 32 have their graphs still
        assert function(torch.zeros(n, device="npu")).tolist() == [1.0] * n
    assert function.calls == calls
    assert not function.said


def test_ever_new_shapes_end_the_captures():
    function = Counted(lambda x: x + 1)
    for _ in range(4):
        for n in range(1, 101):
            assert function(torch.zeros(n, device="npu")).tolist() == [1.0] * n

    # First calls; calls that capture, or may not; and twice those without a graph.
    assert function.calls == 100 + 100 + 2 * (100 - 32)
    (reason,) = function.said
    assert "pad the inputs" in reason


def test_a_capture_that_finds_no_memory_is_tried_again():
    function = Counted(lambda x: x.sin().flip(0) + x)
    x = torch.linspace(0, 1, 8 << 20)
    want, here = x.sin().flip(0) + x, x.npu()
    same(function(here), want)
    torch.npu.empty_cache()
    total = torch.npu.get_device_properties().total_memory
    some = torch.npu.memory_reserved() + (1 << 20)
    torch.npu.set_per_process_memory_fraction(some / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            function(here)
    finally:
        torch.npu.set_per_process_memory_fraction(1.0)

    for _ in range(4):
        same(function(here), want)
    calls = function.calls
    same(function(here), want)
    assert function.calls == calls


def test_what_cannot_be_captured_is_called():
    function = Counted(lambda x: x * x.sum().item())
    for i in range(8):
        x = torch.full((3,), float(i))
        same(function(x.npu()), x * x.sum())

    (reason,) = function.said
    assert "cannot be captured" in reason and "item()" in reason
    assert function.calls == 8 + 3  # three captures were tried


def test_results_are_those_of_the_other_stream_s_own_graphs():
    function = Counted(deep)
    side = torch.npu.Stream()
    kept = []
    for i in range(4):
        x = matrix(i).npu()
        kept.append((function(x), i))
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            kept.append((function(x), i))
    torch.npu.synchronize()
    for got, i in kept:
        same(got, deep(matrix(i)))
