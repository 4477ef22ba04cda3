"""Functions that replay graphs of their own: what is held is not overwritten."""

import gc
import threading

import pytest
import torch
from counted_replays import Counted

from npu_dispatch.npu.graphs import replays
from npu_dispatch.observe.segment import StatsReader, segment_file
from tests.ecosystem.both import in_threads


def deep(x):
    """Return a product; what it computes on the way is free when it ends."""
    return (x @ x).sin() @ (x + 1).cos()


def wide(x):
    return x @ x, x.cos(), x.sin() + 1


def matrix(seed):
    return torch.randn(48, 48, generator=torch.Generator().manual_seed(seed))


def same(got, want):
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
    def grown():
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


def the_captures():
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
    def twice(x):
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


def open_when_the_queue_is_full(gate):
    number = torch.npu.current_stream().stream_id
    try:
        with StatsReader(segment_file()) as reader:
            while not any(
                s.full_waiting for s in reader.streams() if s.stream == number
            ):
                pass
    finally:
        gate.set()


@pytest.mark.parametrize("again", range(3))  # whose turn it is differs
def test_calls_do_not_mix_where_threads_wait_for_a_place_in_the_queue(again):
    """Two functions of one pool on one stream, each called by two threads."""
    deep = Counted(lambda x: (x + 1).sin() * 0 + x)
    wide = Counted(lambda x: x * 2)
    count = 3000  # of three tasks each, by four threads: more than a queue takes
    given = [torch.full((4,), float(i), device="npu") for i in range(16)]
    for function in (deep, wide):
        # As many graphs as it may have: a capture would wait for the device.
        held = [function(given[0]) for _ in range(6)]
    del held
    torch.npu.synchronize()
    gate = threading.Event()
    torch.npu.current_stream().submit(gate.wait)
    found = [[] for _ in range(4)]

    def calls(function, kept):
        own = (function(given[i % 16]).clone() for i in range(count))
        return lambda: kept.extend(own)

    functions = [deep, wide, deep, wide]
    in_threads(
        lambda: open_when_the_queue_is_full(gate),
        *(calls(f, k) for f, k in zip(functions, found, strict=True)),
    )
    for factor, kept in zip((1, 2, 1, 2), found, strict=True):
        got = torch.stack(kept).cpu()
        want = torch.stack([given[i % 16] for i in range(count)]).cpu() * factor
        assert torch.equal(got, want)


class Together:
    """A lock that is waited for by four threads before one has it."""

    def __init__(self):
        self._all_here, self._lock = threading.Barrier(4), threading.Lock()

    def __enter__(self):
        self._all_here.wait()
        self._lock.acquire()

    def __exit__(self, *_):
        self._lock.release()


@pytest.mark.parametrize(("sizes", "most"), [((1, 2, 3, 4), 3), ((1, 1, 1, 1), 2)])
def test_threads_that_capture_together_keep_as_many_graphs_as_one(
    monkeypatch, sizes, most
):
    monkeypatch.setattr(replays, "_MOST", 3)
    monkeypatch.setattr(replays, "_MOST_ALIKE", 2)
    function = Counted(lambda x: x + 1)
    given = [torch.ones(n, device="npu") for n in sizes]
    for n in set(sizes):
        function(given[sizes.index(n)])  # the second call captures
    monkeypatch.setattr(replays, "_one_capture", Together())
    found = []

    in_threads(*(lambda x=x: found.append(function(x).tolist()) for x in given))

    assert sorted(found) == [[2.0] * n for n in sizes]
    assert function.calls >= len(set(sizes)) + 4  # all have captured
    assert sum(map(len, function._replays._graphs.values())) == most


def test_threads_capture_and_wait_at_the_same_time():
    one, two = Counted(lambda x: x.sin() + 1), Counted(lambda x: x.cos() - 1)
    done = threading.Event()

    def captures(function):
        for n in range(1, 21):
            x = torch.linspace(0, 1, n)
            want = function.function(x)
            for _ in range(3):
                torch.testing.assert_close(function(x.npu()).cpu(), want)

    def waits():
        while not done.is_set():
            assert torch.ones(3, device="npu").sum().item() == 3
            torch.npu.current_stream().synchronize()

    def both():
        try:
            in_threads(lambda: captures(one), lambda: captures(two))
        finally:
            done.set()

    in_threads(waits, both)
    assert one.calls == two.calls == 40
    assert not one.said and not two.said
