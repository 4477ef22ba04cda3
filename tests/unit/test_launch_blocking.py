"""Where launches block, the call that launches the failing work raises its error."""

import contextlib
from collections.abc import Callable

import pytest
import torch
from held_stream import Held
from open_waits import released_when_waiting

from npu_dispatch import _C
from tests.ecosystem.both import in_threads

pytestmark = pytest.mark.usefixtures("reset")


def bad_index(x: torch.Tensor, index: torch.Tensor) -> None:
    index.fill_(9)
    torch.npu.synchronize()


def eager(x: torch.Tensor, index: torch.Tensor) -> Callable[[], object]:
    bad_index(x, index)
    return lambda: x[index]


def backward(x: torch.Tensor, index: torch.Tensor) -> Callable[[], object]:
    leaf = torch.ones(2).npu().requires_grad_()
    loss = (leaf * x[index]).sum()
    source = torch.ones(2).npu()
    leaf.register_hook(lambda grad: source[index])
    bad_index(x, index)
    return loss.backward


def compiled(x: torch.Tensor, index: torch.Tensor) -> Callable[[], object]:
    function = torch.compile(lambda x, index: x[index].sin() * 2)
    for _ in range(2):
        function(x, index)
    bad_index(x, index)
    return lambda: function(x, index)


def replay(x: torch.Tensor, index: torch.Tensor) -> Callable[[], object]:
    graph = torch.npu.NPUGraph()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        x[index]
    bad_index(x, index)
    return graph.replay


def replay_of_two_streams(x: torch.Tensor, index: torch.Tensor) -> Callable[[], object]:
    graph, side = torch.npu.NPUGraph(), torch.npu.Stream()
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            x[index]
        torch.npu.current_stream().wait_stream(side)
    bad_index(x, index)
    return graph.replay


def submitted(x: torch.Tensor, index: torch.Tensor) -> Callable[[], object]:
    def task() -> None:
        raise IndexError("the task's own")

    return lambda: torch.npu.current_stream().submit(task)


CALLS = [eager, backward, compiled, replay, replay_of_two_streams, submitted]


@contextlib.contextmanager
def on(switch: Callable[[bool], None]):
    switch(True)
    try:
        yield
    finally:
        switch(False)


@contextlib.contextmanager
def block_on_a_side_stream():
    with torch.npu.launch_blocking(), torch.npu.stream(torch.npu.Stream()):
        yield


WAYS = {
    "launch_blocking": lambda: torch.npu.launch_blocking(),
    "on a side stream": block_on_a_side_stream,
    "thread": lambda: on(torch.npu.set_thread_launch_blocking),
    "process": lambda: on(torch.npu.set_launch_blocking),
    "SyncLaunchStream": lambda: torch.npu.stream(torch.npu.SyncLaunchStream()),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.__name__)
def test_the_call_raises(call, way: str):
    x, index = torch.rand(5).npu(), torch.tensor([1, 2]).npu()
    launch = call(x, index)

    with WAYS[way](), pytest.raises(torch.npu.DeviceError):
        launch()


def test_a_block_concerns_its_thread_only_and_the_process_all():
    inside = []

    def look() -> None:
        in_threads(lambda: inside.append(_C.launch_blocks()))

    with torch.npu.launch_blocking():
        look()
        with torch.npu.launch_blocking():
            pass
        assert _C.launch_blocks()
    assert not _C.launch_blocks()
    with on(torch.npu.set_launch_blocking):
        look()

    assert inside == [False, True]


@pytest.mark.parametrize("way", ["thread", "process"])
def test_the_call_of_another_thread_raises(way: str):
    raised = []

    def launch() -> None:
        x, index = torch.rand(5).npu(), torch.tensor([9]).npu()
        with WAYS[way]():
            try:
                x[index]
            except IndexError as error:
                raised.append(error)

    in_threads(launch)
    assert len(raised) == 1


def test_calls_that_cannot_fail_have_done_their_work_when_they_return():
    axpy = torch.npu.jiterator._create_jit_fn(
        "template <typename T> T axpy(T x, T y) { return x + y; }"
    )
    x, host = torch.ones(4).npu(), torch.zeros(4).pin_memory()
    axpy(x, x)
    calls = {
        "jiterator": lambda: axpy(x, x),
        "host to device": lambda: x.copy_(host, non_blocking=True),
        "device to host": lambda: host.copy_(x, non_blocking=True),
        "on the device": lambda: x.copy_(x.clone()),
        "fill": lambda: x.zero_(),
        "_sleep": lambda: torch.npu._sleep(1000),
    }
    for name, call in calls.items():
        torch.npu.synchronize()
        with torch.npu.launch_blocking():
            call()
            assert torch.npu.current_stream().query(), name


SECOND_DEVICE = """
import pytest, torch
x, i = torch.rand(5, device="npu:1"), torch.tensor([1, 2], device="npu:1")
graph, task = torch.npu.NPUGraph(), lambda: [].pop()
with torch.npu.device(1):
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        x[i]
i.fill_(9)
calls = [lambda: x[i], graph.replay, lambda: torch.npu.Stream(1).submit(task)]
with torch.npu.launch_blocking():
    for call in calls:
        with pytest.raises(IndexError) as told:
            call()
        assert told.value.device == 1
        torch.npu.reset_device(1)
"""


def test_the_call_raises_on_the_second_device(python):
    python(SECOND_DEVICE, NPU_DISPATCH_DEVICES="2")


# A right program: each thing that a stream waits for is launched after the wait.
WAITS = """
import contextlib, npu_dispatch, torch
npu = torch.npu
a, b, c, other = npu.Stream(0), npu.Stream(0), npu.Stream(0), npu.Stream(1)
npu.synchronize()
def program():
    gate = npu.ExternalEvent()
    gate.wait(a)
    events = [npu.Event(), npu.Event(enable_timing=True), npu.Event(interprocess=True)]
    for event in events:
        event.record(a)
        event.wait(b)
        event.wait(other)
    c.wait_stream(b)
    another = npu.ExternalEvent()
    another.record(c)
    another.wait(b)
    another.reset(b)
    assert not any(stream.query() for stream in (a, b, c, other))
    gate.record(npu.default_stream(0))
    for stream in (a, b, c, other):
        stream.synchronize()
    torch.ones(4, device="npu:0") + 1
    assert npu.current_stream(0).query()
with {way}:
    program()
"""


@pytest.mark.parametrize(
    ("way", "variables"),
    [
        ("contextlib.nullcontext()", {"NPU_LAUNCH_BLOCKING": "1"}),
        ("contextlib.nullcontext()", {"ASCEND_LAUNCH_BLOCKING": "1"}),
        ("contextlib.nullcontext()", {"TASK_QUEUE_ENABLE": "0"}),
        ("npu.launch_blocking()", {}),
    ],
)
def test_no_wait_and_no_mark_makes_the_host_wait(python, way: str, variables: dict):
    code = WAITS.replace("{way}", way)
    python(code, NPU_DISPATCH_DEVICES="2", **variables)


def test_a_wait_of_a_sync_launch_stream_raises_the_error_of_what_it_waits_for():
    failing, direct = torch.npu.Stream(), torch.npu.SyncLaunchStream()
    x, index, event = torch.ones(4).npu(), torch.tensor([9]).npu(), torch.npu.Event()
    torch.npu.synchronize()
    with Held(failing) as held:
        with torch.npu.stream(failing):
            x[index]
        event.record(failing)
        with (
            released_when_waiting("event_sync", held.gate),
            pytest.raises(IndexError, match="waited for another stream"),
        ):
            event.wait(direct)
