"""Replacing the arguments of captured tasks; the engine's part: tests/cpp/graph."""

import re
import sys

import pytest
import torch
from side_streams import side_streams

from tests.graphs.captured import captured


class Captured:
    """y = x * 2; z = y + a, where the addition is a group."""

    def __init__(self):
        self.x = torch.ones(64, device="npu")
        self.a = torch.full((64,), 10.0, device="npu")
        self.z = torch.zeros(64, device="npu")
        self.graph = torch.npu.NPUGraph()
        (self.other,) = side_streams(1)
        with torch.npu.graph(self.graph):
            stream = torch.npu.current_stream()
            self.y = self.x * 2
            torch.npu.graph_task_group_begin(stream)
            torch.add(self.y, self.a, out=self.z)
            self.handle = torch.npu.graph_task_group_end(stream)

    def update(self, call):
        torch.npu.graph_task_update_begin(self.other, self.handle)
        with torch.npu.stream(self.other):
            call()
        torch.npu.graph_task_update_end(self.other)
        torch.npu.synchronize()

    def result(self):
        self.graph.replay()
        values = set(self.z.tolist())
        assert len(values) == 1
        return values.pop()


def added(value):
    return torch.full((64,), float(value), device="npu")


def test_an_update_replaces_tensors_and_scalars():
    c = Captured()
    assert c.result() == 12

    b = added(100)
    c.update(lambda: torch.add(c.y, b, out=c.z))
    assert c.z.eq(12).all(), "the operators of an update do not run"
    assert c.result() == 102

    c.update(lambda: torch.add(c.y, b, alpha=3, out=c.z))
    assert c.result() == 302
    assert c.result() == 302

    for alpha in (2, 5):  # the last one counts
        c.update(lambda alpha=alpha: torch.add(c.y, b, alpha=alpha, out=c.z))
    assert c.result() == 502


def test_a_replay_sees_all_old_or_all_new_arguments():
    n = 1 << 12
    parts = [torch.zeros(n, device="npu") for _ in range(8)]
    sources = [torch.full((n,), float(i), device="npu") for i in range(2)]
    graph, (other,) = torch.npu.NPUGraph(), side_streams(1)
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(stream)
        for part in parts:
            torch.add(sources[0], 0, out=part)
        handle = torch.npu.graph_task_group_end(stream)
    torch.npu.synchronize()

    for i in range(100):
        torch.npu.graph_task_update_begin(other, handle)
        with torch.npu.stream(other):
            for part in parts:
                torch.add(sources[i % 2], 0, out=part)
        graph.replay()
        torch.npu.graph_task_update_end(other)
        graph.replay()
        assert len({part[0].item() for part in parts}) == 1


def test_what_is_no_group_and_no_stream_is_refused():
    c = Captured()
    with pytest.raises(RuntimeError, match=r"expected a torch\.npu\.Stream"):
        torch.npu.graph_task_update_begin(0, c.handle)
    with pytest.raises(RuntimeError, match="other shapes"):
        c.update(lambda: torch.add(c.y[:8], c.a[:8], out=c.z[:8]))
    assert c.result() == 12
    with torch.npu.graph(torch.npu.NPUGraph()):
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
        with pytest.raises(RuntimeError, match="no task was captured"):
            torch.npu.graph_task_group_end(torch.npu.current_stream())


def numbers_graph(x):
    def work():
        y = torch.clamp(x, 0, 10)
        return torch.add(y, x, alpha=2)

    return captured(work, auto_dispatch_capture=True)


def test_update_changes_the_numbers_of_captured_operators():
    x = torch.full((4,), 100.0, device="npu")
    graph, z = numbers_graph(x)
    graph.replay()
    assert z.tolist() == [210] * 4

    graph.update([{"alpha": 3}])
    graph.replay()
    assert z.tolist() == [310] * 4

    graph.update([{"max": 20}, {"alpha": 1}])
    graph.replay()
    assert z.tolist() == [120] * 4


def test_update_takes_another_stream_than_the_capture_wherever_the_pool_stands():
    x = torch.full((4,), 100.0, device="npu")
    graph, z = numbers_graph(x)
    capture = torch.npu.graph.capture_stream_of(0)
    while torch.npu.Stream() != capture:
        pass
    for _ in range(31):
        torch.npu.Stream()

    graph.update([{"alpha": 3}])  # the next one of the pool is the capture's

    graph.replay()
    assert z.tolist() == [310] * 4


FREED = r"node 1, aten::add.out, captured at .*: a tensor that it uses has been freed"


def test_the_replay_that_reaches_a_group_whose_arguments_were_freed_names_the_line():
    c = Captured()
    assert c.result() == 12
    line = sys._getframe().f_lineno + 1
    del c.a
    strangers = [added(-9) for _ in range(8)]
    for _ in range(2):
        c.graph.replay()
        with pytest.raises(RuntimeError) as raised:
            torch.npu.synchronize()
        torch.npu.clear_error()
        said = str(raised.value)
        assert re.search(FREED, said) and f"test_updates.py:{line} in" in said, said
    assert c.z.eq(12).all() and all(t.eq(-9).all() for t in strangers)

    c.b = added(100)
    c.update(lambda: torch.add(c.y, c.b, out=c.z))
    assert c.result() == 102


def test_update_refuses_what_fits_nowhere():
    x = torch.full((4,), 100.0, device="npu")
    graph, _ = numbers_graph(x)
    plain, _ = captured(lambda: x.add_(1))

    for of, numbers, why in (
        (graph, [{}, {}, {}], "a list of 1 or 2 dicts"),
        (graph, [{"beta": 1}], "no captured operator takes"),
        (graph, [{"alpha": 1}, {}], "takes no number named"),
        (plain, [{"alpha": 1}], "auto_dispatch_capture=True"),
    ):
        with pytest.raises(RuntimeError, match=why):
            of.update(numbers)
