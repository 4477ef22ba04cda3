"""Under chosen interleavings: awaits and external events end, or say why not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_dispatch.testing import explore, schedule

npu = torch.npu


def _made() -> tuple[Any, Any, torch.Tensor]:
    x = torch.zeros(4, device="npu")
    npu.synchronize()
    return npu.Stream(), npu.ExternalEvent(), x


def _awaits(what: Callable[[], Any]) -> torch.Tensor:
    async def main() -> torch.Tensor:
        x = torch.ones(4, device="npu") * 2
        await what()
        return x

    return asyncio.run(main())


def _awaits_what_another_coroutine_lets_go_on() -> torch.Tensor:
    s, done = npu.Stream(), npu.ExternalEvent()

    async def main() -> torch.Tensor:
        x = torch.zeros(4, device="npu")
        npu.synchronize()
        done.wait(s)
        with npu.stream(s):
            x.add_(1)

        async def first() -> None:
            await s

        async def second() -> None:
            done.record()

        await asyncio.gather(first(), second())
        return x

    return asyncio.run(main())


def _records_before_the_wait() -> torch.Tensor:
    s, done, x = _made()
    with npu.stream(s):
        x.add_(1)
        done.record()
    done.wait()
    x.mul_(3)
    npu.synchronize()
    return x


def _records_after_the_wait() -> torch.Tensor:
    s, done, x = _made()
    done.wait(s)
    with npu.stream(s):
        x.mul_(3)
    x.add_(1)
    done.record()
    npu.current_stream().wait_stream(s)
    return x


def _waits_on_a_stream_without_a_queue() -> torch.Tensor:
    s, done, x = _made()
    with npu.stream(s):
        x.add_(1)
        done.record()
    inline = npu.SyncLaunchStream()
    done.wait(inline)
    with npu.stream(inline):
        x.mul_(3)
    return x


def _replays_a_graph_that_waits() -> torch.Tensor:
    s, done = npu.Stream(), npu.ExternalEvent()
    x, graph = torch.ones(4, device="npu"), npu.NPUGraph()
    with npu.graph(graph):
        done.wait()
        y = x * 2
    npu.synchronize()
    with npu.stream(s):
        x.fill_(3)
        done.record()
    graph.replay()
    return y.cpu()


def _host_waits_for_an_interprocess_event() -> torch.Tensor:
    s, done = npu.Stream(), npu.Event(interprocess=True)
    x = torch.zeros(4, device="npu")
    npu.synchronize()
    with npu.stream(s):
        x.add_(1)
        done.record()
    while not done.query():
        pass
    done.synchronize()
    return x.mul_(3)


@pytest.mark.parametrize(
    "program",
    [
        lambda: _awaits(npu.current_stream),
        lambda: _awaits(npu.current_stream().record_event),
        _awaits_what_another_coroutine_lets_go_on,
        _records_before_the_wait,
        _records_after_the_wait,
        _waits_on_a_stream_without_a_queue,
        _replays_a_graph_that_waits,
        _host_waits_for_an_interprocess_event,
    ],
)
@pytest.mark.timeout(30)
def test_a_program_that_waits_ends_under_all_schedules(
    program: Callable[[], torch.Tensor],
) -> None:
    explore(program, schedules=20)


@pytest.mark.timeout(30)
def test_an_event_that_nobody_records_is_an_error_that_names_the_wait():
    s, done = npu.Stream(), npu.ExternalEvent()

    with pytest.raises(RuntimeError, match="would never end") as raised, schedule(1):
        done.wait(s)
        s.synchronize()

    npu.clear_error(s)
    assert "external event wait" in str(raised.value)
    assert "test_explore_waits.py" in str(raised.value)


@pytest.mark.timeout(30)
def test_another_thread_may_record_the_event() -> None:
    s, done, x = _made()
    known, queued = threading.Event(), threading.Event()

    def record() -> None:
        torch.ones(1, device="npu")
        known.set()
        queued.wait()
        done.record(npu.default_stream())

    with schedule(3):
        thread = threading.Thread(target=record)
        thread.start()
        known.wait()
        done.wait(s)
        with npu.stream(s):
            x.add_(1)
        queued.set()
        s.synchronize()
        thread.join()

    assert x.tolist() == [1] * 4
