"""A capture that nobody can end any more is over, and holds nothing."""

import gc

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_pre_hooks

from npu_dispatch.npu.graphs import records
from tests.ecosystem.both import in_threads
from tests.graphs.captured import captured

MODES = ["global", "thread_local", "relaxed"]


def begun(mode="global", kind=torch.npu.NPUGraph):
    """Return a graph whose capture has begun, and has tasks and memory."""
    own = kind is torch.npu.NPUGraph
    graph = kind() if own else kind(capture_error_mode=mode)
    with torch.npu.stream(torch.npu.Stream()):
        graph.capture_begin(**({"capture_error_mode": mode} if own else {}))
        torch.ones(1 << 20, device="npu").mul_(2)
    return graph


def check_that_nothing_is_held(reserved):
    assert torch.npu.NPUGraph.get_currently_capturing_graph() is None
    torch.npu.synchronize()
    torch.npu.empty_cache()
    assert torch.npu.memory_reserved() == reserved
    x = torch.ones(2, device="npu")
    graph, y = captured(lambda: x * 3)
    graph.replay()
    assert y.tolist() == [3, 3]


@pytest.fixture(autouse=True)
def reserved():
    """Return the bytes that earlier tests have left in use."""
    torch.npu.synchronize()
    torch.npu.empty_cache()
    return torch.npu.memory_reserved()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", [lambda f: f(), in_threads], ids=["here", "thread"])
def test_a_capture_is_over_when_its_graph_is_freed(mode, where, reserved):
    where(lambda: begun(mode) and None)

    check_that_nothing_is_held(reserved)


def test_a_capture_is_over_when_an_exception_frees_its_graph(reserved):
    def step():
        graph = begun()
        raise ZeroDivisionError(graph.capturing())

    with pytest.raises(ZeroDivisionError) as raised:
        step()
    assert torch.npu.NPUGraph.get_currently_capturing_graph() is not None
    del raised  # its traceback has the frame that has the graph
    gc.collect()

    check_that_nothing_is_held(reserved)


def test_a_capture_is_over_when_its_generator_is_dropped(reserved):
    def with_a_block(graph):
        with torch.npu.graph(graph):
            yield

    def with_a_graph_of_its_own():
        graph = begun()
        yield graph.capturing()

    held = torch.npu.NPUGraph()
    for generator in (with_a_block(held), with_a_graph_of_its_own()):
        next(generator)
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is not None
        generator.close()
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is None
    del generator, held
    check_that_nothing_is_held(reserved)


@pytest.mark.parametrize("mode", ["global", "thread_local"])
@pytest.mark.parametrize("kind", [torch.npu.NPUGraph, torch.accelerator.Graph])
def test_a_capture_is_over_when_its_thread_has_ended(kind, mode, reserved):
    held = []
    in_threads(lambda: held.append(begun(mode, kind)))
    while capturing():  # a thread ends a moment after join() returns
        pass

    check_that_nothing_is_held(reserved)
    ended = pytest.raises(RuntimeError, match=r"not being captured.*thread")
    with torch.npu.stream(torch.npu.Stream()), ended:
        held[0].capture_end()
    with pytest.raises(RuntimeError, match="without a capture"):
        held[0].pool()
    x = torch.ones(2, device="npu")
    torch.npu.synchronize()
    with torch.npu.stream(torch.npu.Stream()):
        held[0].capture_begin()
        y = x + 1
        held[0].capture_end()
    held[0].replay()
    assert y.tolist() == [2, 2]


def capturing():
    """Return whether there is a capture that a wait would meet."""
    try:
        torch.npu.synchronize()
    except RuntimeError as error:
        assert "while a graph is captured" in str(error)
        return True
    return False


def interrupted(*_):
    raise KeyboardInterrupt


def test_a_block_that_is_interrupted_as_it_begins_or_ends_captures_no_more(
    monkeypatch, reserved
):
    graph, before = torch.npu.NPUGraph(), torch.npu.current_stream()

    class Recorder(records.Recorder):
        __enter__ = interrupted

    for owner, name, by in (
        (records, "Recorder", Recorder),
        (torch.npu.NPUGraph, "capture_end", interrupted),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, by)
            block = torch.npu.graph(graph, auto_dispatch_capture=by is Recorder)
            with pytest.raises(KeyboardInterrupt), block:
                pass
        assert torch.npu.current_stream() == before
        check_that_nothing_is_held(reserved)


def test_a_block_inside_of_its_own_graphs_capture_leaves_that_alone():
    x, graph = torch.ones(2, device="npu"), torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        inner = torch.npu.graph(graph, stream=torch.npu.Stream())
        with pytest.raises(RuntimeError, match="not allowed"):
            inner.__enter__()
        x.add_(1)
    graph.replay()
    assert x.tolist() == [2, 2]


def test_optimizers_step_as_before_where_a_capture_was_given_up():
    hooks = _global_optimizer_pre_hooks
    before = len(hooks)
    model = nn.Linear(2, 2).npu()
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 2, device="npu")).sum().backward()
    graph = begun()
    with pytest.raises(RuntimeError, match="counts its steps"):
        optimizer.step()
    graph.reset()
    assert len(hooks) == before
    begun()  # and freed at once

    optimizer.step()

    with torch.npu.graph(torch.npu.NPUGraph()):
        pass
    assert len(hooks) == before


def test_a_second_capture_is_told_how_to_give_up_the_first(reserved):
    graph = begun()
    told = pytest.raises(RuntimeError, match=r"get_currently_capturing_graph\(\)")
    with torch.npu.stream(torch.npu.Stream()), told:
        torch.npu.NPUGraph().capture_begin()
    assert torch.npu.NPUGraph.get_currently_capturing_graph() is graph
    graph.reset()
    check_that_nothing_is_held(reserved)
    assert not graph.capturing()


BEGIN = """
import os, sys, threading, torch, npu_dispatch
from tests.graphs.captured import captured
def begin(device=0, mode="global"):
    global graph  # which stays reachable
    graph = torch.npu.NPUGraph()
    with torch.npu.device(device), torch.npu.stream(torch.npu.Stream()):
        graph.capture_begin(capture_error_mode=mode)
        torch.ones(4, device="npu").mul_(2)
def hold():
    global gate
    gate = threading.Event()
    side = torch.npu.Stream()
    side.submit(lambda: gate.wait() and None)
    side.submit(lambda: print("ran", flush=True))
"""

SECOND_DEVICE = """
thread = threading.Thread(target=begin, args=(1,))
thread.start()
thread.join()
while True:
    try:
        torch.npu.synchronize(0)
        break
    except RuntimeError:  # the thread ends a moment after join() returns
        pass
assert torch.npu.NPUGraph.get_currently_capturing_graph() is None
x = torch.ones(2, device="npu:1")
with torch.npu.device(1):
    graph, _ = captured(lambda: x.add_(1))
    graph.replay()
assert x.tolist() == [2, 2]
"""

# The child ends, and the parent's capture goes on.
FORK = """
import gc
x = torch.zeros(2, device="npu")
torch.npu.synchronize()
for mode in ("global", "relaxed"):
    begin(mode=mode)
    child = os.fork()
    if child == 0:
        assert not graph.capturing()
        assert torch.npu.NPUGraph.get_currently_capturing_graph() is None
        del graph
        gc.collect()
        os._exit(7)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert graph.capturing()
    graph.reset()
assert x.tolist() == [0, 0]
"""


@pytest.mark.parametrize("code", [SECOND_DEVICE, FORK], ids=["second device", "fork"])
def test_a_program_goes_on(python, code):
    python(BEGIN + code, NPU_DISPATCH_DEVICES="2")


# Who has begun a capture that nobody ends.
BEGINS = {
    "the main thread": "begin()",
    "a daemon thread": """
begun = threading.Event()
def work():
    begin()
    begun.set()
    threading.Event().wait()
threading.Thread(target=work, daemon=True).start()
begun.wait()
""",
    "a thread that has ended": """
thread = threading.Thread(target=begin)
thread.start()
thread.join()
""",
}


@pytest.mark.parametrize("who", BEGINS)
def test_what_is_queued_runs_at_exit_where_a_capture_is_unfinished(fresh_python, who):
    code = f"{BEGIN}hold()\n{BEGINS[who]}\ngate.set()\nraise KeyError('mine')"
    result = fresh_python(code, check=False)

    assert result.stdout.split() == ["ran"]
    assert "KeyError: 'mine'" in result.stderr.splitlines()
