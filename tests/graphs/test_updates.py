"""Replacing the arguments of captured tasks."""

from __future__ import annotations

import gc
import re
import sys

import pytest
import torch
from held_stream import Held
from side_streams import side_streams


class Captured:
    """y = x * 2; z = y + a, where the addition is a group."""

    def __init__(self, **options) -> None:
        self.x = torch.ones(64, device="npu")
        self.a = torch.full((64,), 10.0, device="npu")
        self.z = torch.zeros(64, device="npu")
        self.graph = torch.npu.NPUGraph()
        (self.other,) = side_streams(1)
        self.capture(**options)

    def capture(self, **options) -> None:
        with torch.npu.graph(self.graph, **options):
            stream = torch.npu.current_stream()
            self.y = self.x * 2
            torch.npu.graph_task_group_begin(stream)
            torch.add(self.y, self.a, out=self.z)
            self.handle = torch.npu.graph_task_group_end(stream)

    def update(self, call) -> None:
        torch.npu.graph_task_update_begin(self.other, self.handle)
        try:
            with torch.npu.stream(self.other):
                call()
        finally:
            torch.npu.graph_task_update_end(self.other)

    def result(self) -> float:
        self.graph.replay()
        values = set(self.z.tolist())
        assert len(values) == 1
        return values.pop()


def test_an_update_replaces_tensors_and_scalars():
    c = Captured()
    assert c.result() == 12

    b = torch.full((64,), 100.0, device="npu")
    c.update(lambda: torch.add(c.y, b, out=c.z))
    torch.npu.synchronize()
    assert c.result() == 102

    c.update(lambda: torch.add(c.y, b, alpha=3, out=c.z))
    torch.npu.synchronize()
    assert c.result() == 302
    assert c.result() == 302


def test_the_operators_of_an_update_do_not_run():
    c = Captured()
    target = torch.zeros(64, device="npu")

    c.update(lambda: torch.add(c.x, c.x, out=target))
    torch.npu.synchronize()

    assert target.sum().item() == 0
    c.graph.replay()
    assert target.sum().item() == 128


def test_an_update_takes_effect_in_the_order_of_its_stream():
    c = Captured()
    tensors = [torch.full((64,), float(i), device="npu") for i in range(50)]
    torch.npu.synchronize()

    for i, t in enumerate(tensors):
        c.update(lambda t=t: torch.add(c.y, t, out=c.z))
        torch.npu.current_stream().wait_stream(c.other)
        assert c.result() == 2 + i


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: torch.mul(c.y, c.a, out=c.z), "is aten::mul.out, not aten::add.out"),
        (lambda c: None, "0 operators were called, the group has 1"),
        (
            lambda c: (torch.add(c.y, c.a, out=c.z), torch.add(c.y, c.a, out=c.z)),
            "2 operators were called, the group has 1",
        ),
        (lambda c: torch.add(c.y[:8], c.a[:8], out=c.z[:8]), "other shapes"),
    ],
)
def test_wrong_operators_and_counts_are_refused(call, message):
    c = Captured()

    with pytest.raises(RuntimeError, match=message):
        c.update(lambda: call(c))

    assert c.result() == 12


def test_a_group_needs_a_capture():
    with pytest.raises(RuntimeError, match="does not capture"):
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
    with pytest.raises(RuntimeError, match="without graph_task_group_begin"):
        torch.npu.graph_task_group_end(torch.npu.current_stream())


def test_an_update_needs_a_begin_and_another_stream():
    c = Captured()
    with pytest.raises(RuntimeError, match="without graph_task_update_begin"):
        torch.npu.graph_task_update_end(c.other)
    with pytest.raises(RuntimeError, match="captured on this stream"):
        torch.npu.graph_task_update_begin(
            torch.npu.graph.capture_stream_of(0), c.handle
        )
    with pytest.raises(RuntimeError, match=r"expected a torch\.npu\.Stream"):
        torch.npu.graph_task_update_begin(0, c.handle)


def test_an_update_of_a_graph_that_was_reset_is_refused():
    c = Captured()
    c.graph.reset()

    with pytest.raises(RuntimeError, match="no finished capture"):
        torch.npu.graph_task_update_begin(c.other, c.handle)


def test_a_group_without_a_task_is_refused():
    with torch.npu.graph(torch.npu.NPUGraph()):
        torch.npu.graph_task_group_begin(torch.npu.current_stream())
        with pytest.raises(RuntimeError, match="no task was captured"):
            torch.npu.graph_task_group_end(torch.npu.current_stream())


def test_results_of_updated_operators_stay_where_later_tasks_read_them():
    x = torch.ones(8, device="npu")
    graph, (other,) = torch.npu.NPUGraph(), side_streams(1)
    with torch.npu.graph(graph):
        stream = torch.npu.current_stream()
        torch.npu.graph_task_group_begin(stream)
        y = x * 2
        handle = torch.npu.graph_task_group_end(stream)
        z = y + 1

    torch.npu.graph_task_update_begin(other, handle)
    with torch.npu.stream(other):
        _ = x * 5
    torch.npu.graph_task_update_end(other)
    torch.npu.synchronize()
    graph.replay()

    assert z.tolist() == [6] * 8


def numbers_graph(x):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        y = torch.clamp(x, 0, 10)
        z = torch.add(y, x, alpha=2)
    return graph, z


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


FREED = (
    r"node \d+, aten::add.out, captured at .*: a tensor that it uses has been freed at"
)


def failure(graph) -> str:
    """Replay, and return what the stream has failed with; "" where it has not."""
    try:
        graph.replay()
        torch.npu.synchronize()
    except RuntimeError as error:
        torch.npu.clear_error()
        return str(error)
    return ""


def added(value: float) -> torch.Tensor:
    return torch.full((64,), float(value), device="npu")


def test_the_replay_that_reaches_a_group_whose_arguments_were_freed_fails():
    c = Captured()
    assert c.result() == 12
    line = sys._getframe().f_lineno + 1
    del c.a
    strangers = [added(-9) for _ in range(8)]
    for _ in range(2):
        said = failure(c.graph)
        assert re.search(FREED, said) and f"test_updates.py:{line} in" in said, said
    assert c.z.eq(12).all() and all(t.eq(-9).all() for t in strangers)

    c.b = added(100)
    c.update(lambda: torch.add(c.y, c.b, out=c.z))
    torch.npu.synchronize()
    assert c.result() == 102
    with torch.npu.launch_blocking():
        del c.b
        assert re.search(FREED, failure(c.graph))


def test_arguments_of_an_update_are_used_as_long_as_they_are_there():
    c = Captured()
    b = [added(100)]
    c.update(lambda: torch.add(c.y, b.pop(), out=c.z))  # freed before its end
    torch.npu.synchronize()
    del c.a  # was replaced
    assert re.search(FREED, failure(c.graph))
    assert re.search(FREED, failure(c.graph))


def test_arguments_may_go_once_the_replay_is_queued():
    c = Captured()
    c.b = added(100)
    torch.npu.synchronize()
    with Held():
        c.graph.replay()
        del c.a
    torch.npu.synchronize()
    assert c.z.eq(12).all()

    c.update(lambda: torch.add(c.y, c.b, out=c.z))
    torch.npu.current_stream().wait_stream(c.other)
    with Held():
        c.graph.replay()
        del c.b
    torch.npu.synchronize()
    assert c.z.eq(102).all()


@pytest.mark.npu_races("to reach what the check would find")
def test_what_groups_use_is_not_checked_where_the_capture_says_so():
    c = Captured(check_input_liveness=False)
    del c.a
    assert not failure(c.graph)


def test_an_update_whose_graph_is_gone_is_refused():
    c = Captured()
    torch.npu.graph_task_update_begin(c.other, c.handle)
    x, y, z = c.x, c.y, c.z
    other = c.other
    del c
    gc.collect()
    with torch.npu.stream(other):
        torch.add(y, x, out=z)
    with pytest.raises(RuntimeError, match="the graph is gone"):
        torch.npu.graph_task_update_end(other)


def test_a_handle_of_an_earlier_capture_is_refused():
    c = Captured()
    old = c.handle
    for _ in range(4):
        c.graph.reset()
        torch.npu.synchronize()
        torch.npu.empty_cache()
        c.capture()
        with pytest.raises(RuntimeError, match="not of the graph's capture"):
            torch.npu.graph_task_update_begin(c.other, old)
        with pytest.raises(RuntimeError, match="without graph_task_update_begin"):
            torch.npu.graph_task_update_end(c.other)
    assert c.result() == 12


def test_update_refuses_what_fits_nowhere():
    x = torch.full((4,), 100.0, device="npu")
    graph, _ = numbers_graph(x)

    with pytest.raises(RuntimeError, match="a list of 1 or 2 dicts"):
        graph.update([{}, {}, {}])
    with pytest.raises(RuntimeError, match="no captured operator takes"):
        graph.update([{"beta": 1}])
    with pytest.raises(RuntimeError, match="takes no number named"):
        graph.update([{"alpha": 1}, {}])
    plain = torch.npu.NPUGraph()
    with torch.npu.graph(plain):
        x.add_(1)
    with pytest.raises(RuntimeError, match="auto_dispatch_capture=True"):
        plain.update([{"alpha": 1}])
