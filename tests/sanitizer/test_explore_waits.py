"""Under chosen interleavings: graphs, awaits and external events."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_dispatch.testing import ScheduleError, explore, schedule
from tests.graphs.captured import captured

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
    s, done, x = npu.Stream(), npu.ExternalEvent(), torch.ones(4, device="npu")

    def waits():
        done.wait()
        return x * 2

    graph, y = captured(waits)
    npu.synchronize()
    with npu.stream(s):
        x.fill_(3)
        done.record()
    graph.replay()
    return y.cpu()


def _host_waits_for_an_interprocess_event() -> torch.Tensor:
    s, _, x = _made()
    done = npu.Event(interprocess=True)
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


BYTES = 1 << 22


def test_a_tensor_freed_in_a_capture_leaves_nothing_for_replays_to_do():
    with schedule(1):
        s = torch.npu.Stream()
        with torch.npu.stream(s):
            old = torch.ones(BYTES // 4, device="npu")
        x = torch.ones(8, device="npu")
        torch.npu.synchronize()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph, stream=s):
            y = x * 2
            del old
        with torch.npu.stream(s):
            new = torch.ones(BYTES // 4, device="npu")
        torch.npu.synchronize()
        graph.replay()
        torch.npu.synchronize()

        assert bool((new == 1).all())
        assert y.tolist() == [2] * 8


def two_branches() -> torch.Tensor:
    x, s = torch.ones(8, device="npu"), torch.npu.Stream()
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        here = torch.npu.current_stream()
        a = x * 2
        s.wait_stream(here)
        with torch.npu.stream(s):
            b = x * 3
        here.wait_stream(s)
        y = a + b
    x.fill_(2)
    graph.replay()
    return y.cpu()


def test_a_graph_of_two_branches_is_the_same_under_all_schedules():
    explore(two_branches, schedules=10)

    assert two_branches().tolist() == [10] * 8


def test_a_graph_and_its_result_may_be_dropped_while_its_replay_is_queued():
    def program() -> torch.Tensor:
        x = torch.ones(10, device="npu")
        graph, y = captured(lambda: x * 2)
        x.fill_(3)
        graph.replay()
        return y.clone()

    explore(program, schedules=40)


def test_so_may_graphs_that_were_captured_before_the_schedule():
    def replayed(x: torch.Tensor, seed: int) -> list[float]:
        graph, y = captured(lambda: x * 2)
        with schedule(seed):
            x.fill_(seed)
            graph.replay()
            result = y.clone()
            del y, graph
            torch.npu.synchronize()
            return result.tolist()

    x = torch.ones(10, device="npu")

    assert [replayed(x, seed) for seed in range(40)] == [
        [2.0 * seed] * 10 for seed in range(40)
    ]


def test_what_is_freed_outside_a_capture_is_still_overwritten():
    def program() -> torch.Tensor:
        s, x = torch.npu.Stream(), torch.ones(10, device="npu")
        graph, y = captured(lambda: x * 2)
        graph.replay()
        other = torch.ones(10, device="npu")
        s.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(s):
            z = other + y
        del other
        torch.npu.synchronize()
        return z

    with pytest.raises(ScheduleError):
        explore(program, schedules=40)


def test_graphed_callables_train_the_same_under_all_schedules():
    def train() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8).npu()
        graphed = torch.npu.make_graphed_callables(model, (torch.rand(4, 8).npu(),))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for _ in range(2):
            optimizer.zero_grad(set_to_none=False)
            graphed(torch.rand(4, 8).npu()).sum().backward()
            optimizer.step()
        return list(model.parameters())

    explore(train, schedules=10)
