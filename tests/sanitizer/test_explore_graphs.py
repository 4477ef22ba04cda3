"""Graphs under chosen interleavings: their memory, their branches, their end."""

from __future__ import annotations

import pytest
import torch

from npu_dispatch.testing import ScheduleError, explore, schedule

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
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x * 2
        x.fill_(3)
        graph.replay()
        return y.clone()

    explore(program, schedules=40)


def test_so_may_graphs_that_were_captured_before_the_schedule():
    def replayed(x: torch.Tensor, seed: int) -> list[float]:
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x * 2
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
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = x * 2
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
