"""Functions that replay graphs of their own, called by several threads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
from counted_replays import Counted
from torch import Tensor

from npu_dispatch.observe.segment import StatsReader, segment_file


def all_run(*functions: Callable[[], None]) -> None:
    """Run each in a thread of its own; raise what one of them raises."""
    raised: list[BaseException] = []

    def guarded(function: Callable[[], None]) -> None:
        try:
            function()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(f,)) for f in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def open_when_the_queue_is_full(gate: threading.Event) -> None:
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
    found: list[list[Tensor]] = [[] for _ in range(4)]

    def calls(function: Counted, kept: list[Tensor]) -> Callable[[], None]:
        return lambda: kept.extend(
            function(given[i % 16]).clone() for i in range(count)
        )

    functions = [deep, wide, deep, wide]
    all_run(
        lambda: open_when_the_queue_is_full(gate),
        *(calls(f, k) for f, k in zip(functions, found, strict=True)),
    )
    for factor, kept in zip((1, 2, 1, 2), found, strict=True):
        got = torch.stack(kept).cpu()
        want = torch.stack([given[i % 16] for i in range(count)]).cpu() * factor
        assert torch.equal(got, want)


def test_threads_capture_and_wait_at_the_same_time():
    one, two = Counted(lambda x: x.sin() + 1), Counted(lambda x: x.cos() - 1)
    done = threading.Event()

    def captures(function: Counted) -> None:
        for n in range(1, 21):
            x = torch.linspace(0, 1, n)
            want = function.function(x)
            for _ in range(3):
                torch.testing.assert_close(function(x.npu()).cpu(), want)

    def waits() -> None:
        while not done.is_set():
            assert torch.ones(3, device="npu").sum().item() == 3
            torch.npu.current_stream().synchronize()

    def both() -> None:
        try:
            all_run(lambda: captures(one), lambda: captures(two))
        finally:
            done.set()

    all_run(waits, both)
    assert one.calls == two.calls == 40
    assert not one.said and not two.said
