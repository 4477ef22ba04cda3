"""What a capture does not allow raises at once, and the capture can be ended.

The rules of the engine itself: tests/cpp/graph.
"""

import pytest
import torch
from torch import nn


@pytest.fixture
def graph():
    return torch.npu.NPUGraph()


def matrix():
    return torch.ones(4, 4, device="npu")


# A call with a matrix | what the error names.
WAITS = """
x.sum().item() | _local_scalar_dense
bool(x[0, 0] > 0) | _local_scalar_dense
x.nonzero() | aten::nonzero
x.unique() | unique
torch.equal(x, x) | aten::equal
x.cpu() | to the host
torch.npu.synchronize() | synchronize
torch.npu.current_stream().synchronize() | waiting for a stream
torch.npu.current_stream().query() | query
torch.npu.manual_seed(1) | changing the seed
torch.npu.set_rng_state(torch.zeros(16, dtype=torch.uint8)) | changing the state
"""


@pytest.mark.parametrize("row", WAITS.strip().splitlines())
def test_what_is_forbidden_raises_with_op_line_thread_and_rule(row, graph):
    x = matrix()
    call, what = row.split(" | ")

    with pytest.raises(RuntimeError) as raised, torch.npu.graph(graph):
        x.add_(1)
        eval(compile(call, __file__, "eval"), {"torch": torch, "x": x})

    text = str(raised.value)
    assert what in text
    assert "test_capture_rules.py:" in text
    assert "on thread " in text
    assert "is not allowed while a graph is captured" in text
    # The process goes on, and what was captured before is there.
    assert not torch.npu.is_current_stream_capturing()
    assert torch.npu.current_stream() == torch.npu.default_stream()
    graph.replay()
    assert x.tolist() == [[2.0] * 4] * 4


@pytest.mark.parametrize("place", [torch.npu, torch.accelerator])
def test_to_empty_the_cache_in_a_capture_does_nothing(place, graph):
    x = matrix()
    del (unused := [matrix()])[:]
    before = torch.npu.memory_reserved()
    with torch.npu.graph(graph):
        x.add_(1)
        place.empty_cache()
        x.add_(1)

    assert torch.npu.memory_reserved() >= before and not unused
    graph.replay()
    assert x.tolist() == [[3.0] * 4] * 4


def test_a_forbidden_call_that_is_caught_leaves_the_capture_alone(graph):
    x = matrix()
    with torch.npu.graph(graph):
        x.add_(1)
        with pytest.raises(RuntimeError, match="item"):
            x.sum().item()
        x.add_(1)

    graph.replay()
    assert x[0].tolist() == [3, 3, 3, 3]


def test_pageable_memory_cannot_be_copied_in(graph):
    x = torch.zeros(10_000, device="npu")
    with pytest.raises(RuntimeError, match="pageable"), torch.npu.graph(graph):
        x.copy_(torch.ones(10_000))


def test_an_event_of_a_capture_cannot_be_waited_for_in_it(graph):
    event = torch.npu.Event()
    with torch.npu.graph(graph):
        event.record()
        with pytest.raises(RuntimeError, match="event"):
            event.synchronize()
        with pytest.raises(RuntimeError, match="event"):
            event.query()
    assert event.query()


def test_a_graph_captures_once(graph):
    with torch.npu.graph(graph):
        pass
    with pytest.raises(RuntimeError, match="captured already"), torch.npu.graph(graph):
        pass


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [
        ("capture_error_mode", "sometimes", "'sometimes'"),
        ("pool", (7, 7, 7), "pool must come from"),
    ],
)
def test_an_unknown_mode_or_pool_is_refused(graph, option, value, said):
    with torch.npu.stream(torch.npu.Stream()):
        with pytest.raises(RuntimeError, match=said):
            graph.capture_begin(**{option: value})
        assert not torch.npu.is_current_stream_capturing()


def test_an_optimizer_that_counts_steps_on_the_host_is_refused(graph):
    model = nn.Linear(2, 2).npu()
    optimizer = torch.optim.Adam(model.parameters())
    wanted = r"fused=True, .* or capturable=True"
    with pytest.raises(RuntimeError, match=wanted), torch.npu.graph(graph):
        model(matrix()[:, :2]).sum().backward()
        optimizer.step()
