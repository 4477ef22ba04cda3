"""A graph knows when a tensor that it uses, and does not own, has been freed."""

import sys
from types import SimpleNamespace

import pytest
import torch
from side_streams import side_streams

from tests.ecosystem.both import in_threads
from tests.graphs.captured import captured

FREED = r"uses has been freed at .*test_inputs\.py:\d+"


def tensors():
    one = torch.ones(64, device="npu")
    return SimpleNamespace(x=one, y=one.clone())


def line():
    """Return the number of the caller's line."""
    return sys._getframe(1).f_lineno


def test_a_replay_names_who_used_and_who_freed_an_input():
    held = tensors()
    at = line() + 1
    graph, z = captured(lambda: (held.x + held.y) * 2)
    graph.replay()
    freed_at = line() + 1
    del held.y

    with pytest.raises(RuntimeError, match="keep the tensors that a graph uses") as e:
        graph.replay()

    assert f"aten::add.Tensor, captured at {__file__}:{at} in test_a_" in str(e.value)
    assert f"freed at {__file__}:{freed_at} in test_a_replay" in str(e.value)
    assert z.tolist() == [4.0] * 64  # as the first replay left it


def test_what_the_graph_owns_may_go():
    x = torch.ones(64, device="npu")
    graph, y = captured(lambda: (x + 1) * 2)
    kept = y[:8]
    del y
    for value in (2.0, 3.0):
        x.copy_(torch.full((64,), value))
        graph.replay()
        assert kept.tolist() == [2 * value + 2] * 8


def test_a_view_keeps_an_input_alive():
    held = tensors()
    graph, y = captured(lambda: held.x[8:16] + 1)
    part = held.x[60:]
    del held.x
    graph.replay()
    assert y.tolist() == [2.0] * 8
    del part
    with pytest.raises(RuntimeError, match=FREED):
        graph.replay()


def test_each_of_two_graphs_knows():
    held, other = tensors(), torch.ones(64, device="npu")
    one, _ = captured(lambda: held.x + 1)
    both, _ = captured(lambda: held.x + held.y)
    del held.y
    one.replay()
    with pytest.raises(RuntimeError, match=FREED):
        both.replay()
    del held.x
    for graph in (one, both):
        with pytest.raises(RuntimeError, match=FREED):
            graph.replay()
    both.reset()  # and is not told any more
    with torch.npu.graph(both):
        w = other * 3
    both.replay()
    assert w.tolist() == [3.0] * 64


def test_freed_by_another_thread_and_lent_to_another_stream():
    held = [torch.ones(64, device="npu")]
    (side,) = side_streams(1)
    graph, _ = captured(lambda: held[0] + 1)
    with torch.npu.stream(side):
        side.wait_stream(torch.npu.default_stream())
        double = held[0] * 2
    held[0].record_stream(side)
    graph.replay()
    in_threads(lambda: held.clear())

    with pytest.raises(RuntimeError, match=FREED):
        graph.replay()
    torch.npu.synchronize()
    assert double.tolist() == [2.0] * 64


def test_an_input_that_was_freed_during_the_capture():
    held = tensors()

    def uses_and_frees():
        result = held.x + 1
        del held.x
        return result

    graph, _ = captured(uses_and_frees)
    with pytest.raises(RuntimeError, match=FREED):
        graph.replay()


def test_a_result_in_another_graphs_pool_may_go_until_that_pool_does():
    held = tensors()
    first, held.y = captured(lambda: held.x + 1)
    second, z = captured(lambda: held.y * 2)
    first.replay()
    second.replay()
    assert z.tolist() == [4.0] * 64
    del held.y
    second.replay()
    assert z.tolist() == [4.0] * 64
    first.reset()
    torch.npu.empty_cache()
    with pytest.raises(RuntimeError, match="uses has been freed;"):
        second.replay()


def test_a_result_that_outlives_its_graph():
    held = tensors()
    first, held.y = captured(lambda: held.x + 1)
    second, z = captured(lambda: held.y * 2)
    first.replay()
    first.reset()
    torch.npu.empty_cache()
    second.replay()
    assert z.tolist() == [4.0] * 64
    third, _ = captured(lambda: held.x * 5)  # takes over what is left of the pool
    del held.y
    with pytest.raises(RuntimeError, match=FREED):
        second.replay()
    third.replay()


def pinned(value):
    return torch.full((1000,), float(value)).pin_memory()


@pytest.mark.parametrize("how", ["read", "written"])
def test_pinned_memory(how):
    held, other = SimpleNamespace(p=pinned(4)), torch.full((1000,), 6.0, device="npu")

    def copy():
        if how == "read":
            other.copy_(held.p, non_blocking=True)
        else:
            held.p.copy_(other, non_blocking=True)

    graph, _ = captured(copy)
    graph.replay()
    torch.npu.synchronize()
    assert torch.equal(held.p, other.cpu())
    part = held.p[900:]
    del held.p
    graph.replay()
    torch.npu.synchronize()
    del part
    strangers = [pinned(-9) for _ in range(4)]
    for _ in range(2):
        with pytest.raises(RuntimeError, match=FREED):
            graph.replay()
        torch.npu.host_empty_cache()  # the memory is unmapped
    torch.npu.synchronize()
    assert all(t.eq(-9).all() for t in strangers)


def test_pinned_memory_that_a_capture_makes_and_frees():
    x, y = torch.ones(1000, device="npu"), torch.zeros(1000, device="npu")
    copied = {"non_blocking": True}
    graph, _ = captured(lambda: y.copy_(x.to("cpu", **copied), **copied))
    with pytest.raises(RuntimeError, match=FREED):
        graph.replay()


def test_registered_memory_until_it_is_not():
    host, x = torch.full((1000,), 4.0), torch.zeros(1000, device="npu")
    runtime = torch.npu.npurt()
    assert runtime.npuHostRegister(host.data_ptr(), host.nbytes, 2) == 0
    graph, _ = captured(lambda: x.copy_(host, non_blocking=True))
    graph.replay()
    assert x.eq(4).all()
    assert runtime.npuHostUnregister(host.data_ptr()) == 0
    with pytest.raises(RuntimeError, match=FREED):
        graph.replay()


def test_the_66_000th_tensor_of_a_call_is_an_input_like_the_first():
    x, held = torch.zeros(1, device="npu"), tensors()
    graph, y = captured(lambda: torch.cat([x] * 66_000 + [held.x.add_(1)]))
    for value in (2.0, 3.0):
        graph.replay()
        assert y[:66_000].eq(0).all() and y[66_000:].eq(value).all()

    del held.x
    with pytest.raises(RuntimeError, match=FREED):
        graph.replay()


def test_the_arguments_are_those_of_torch_cuda_graph():
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    side = torch.npu.Stream()
    with torch.npu.graph(graph, None, side, "thread_local", True, False):
        y = x + 1
    graph.replay()
    assert y.tolist() == [2.0] * 4
