"""Switches of torch's that kernels read: those of the launch, and no hang."""

import threading
import warnings
from types import SimpleNamespace

import pytest
import torch

from npu_dispatch import _C
from npu_dispatch.npu.patches import global_state

KERNELS = ("matmul", "conv", "rnn")


@pytest.fixture(autouse=True)
def as_before():
    yield
    torch.use_deterministic_algorithms(False)
    torch._C._set_mkldnn_enabled(True)


def put(x: torch.Tensor) -> torch.Tensor:
    """Call what refuses to run in deterministic mode, when its kernel runs."""
    index = torch.tensor([0, 1], device=x.device)
    return x.put_(index, torch.tensor([5.0, 6.0], device=x.device))


def test_queued_work_runs_under_the_switches_of_its_launch():
    seen = []
    stream = torch.npu.current_stream()
    stream.submit(lambda: seen.append(torch._C._get_mkldnn_enabled()))
    torch.npu._sleep(20_000_000)
    stream.submit(lambda: seen.append(torch._C._get_mkldnn_enabled()))
    with torch.backends.mkldnn.flags(enabled=False):
        stream.submit(lambda: seen.append(torch._C._get_mkldnn_enabled()))
    torch.npu.synchronize()

    assert seen == [True, True, False]


def test_a_switch_that_is_set_to_what_it_is_waits_for_nothing():
    gate, stream = torch.npu.ExternalEvent(), torch.npu.Stream()
    gate.wait(stream)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            torch.use_deterministic_algorithms(False)
            torch.set_default_dtype(torch.float32)
            torch._C._set_mkldnn_deterministic(torch._C._get_mkldnn_deterministic())
            torch._C._set_mkldnn_enabled(True)
            torch.backends.nnpack.set_flags(torch._C._get_nnpack_enabled())
            # As Dynamo does at the end of each compilation.
            for kind, name in (*(("mkldnn", n) for n in KERNELS), ("cuda", "matmul")):
                now = torch._C._get_fp32_precision_getter(kind, name)
                torch._C._set_fp32_precision_setter(kind, name, now)

        assert not stream.query()
    finally:
        gate.record()
    stream.synchronize()


def test_a_stream_that_waits_for_what_comes_later_is_not_waited_for(python):
    code = """
import warnings, torch
npu = torch.npu
gate, stream, behind = npu.ExternalEvent(), npu.Stream(), npu.Stream()
x = torch.zeros(4, device="npu")
npu.synchronize()
gate.wait(stream)
with npu.stream(stream):
    x += 1
behind.wait_stream(stream)
with npu.stream(behind):
    x *= 2
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    torch.use_deterministic_algorithms(True)
print(len(told), {w.category.__name__ for w in told})
for held, warning in zip((stream, behind), told, strict=True):
    assert f"stream {held.stream_id} waits for an event" in str(warning.message)
print(torch.are_deterministic_algorithms_enabled(), stream.query())
gate.record()
npu.synchronize()
print(x.tolist())
"""
    lines = python(code, timeout=60).stdout.splitlines()

    assert lines[0] == "2 {'RuntimeWarning'}"
    assert lines[1] == "True False"
    assert lines[2] == str([2.0] * 4)


def test_what_another_thread_lets_go_on_is_waited_for(monkeypatch: pytest.MonkeyPatch):
    gate, stream, seen = torch.npu.ExternalEvent(), torch.npu.Stream(), []
    gate.wait(stream)
    stream.submit(lambda: seen.append(torch._C._get_mkldnn_enabled()))
    # A program of one thread would give up after the other time.
    patience, changing = [], threading.Event()
    monkeypatch.setattr(global_state, "_PATIENCE_NS", 100_000_000_000)

    def finish(patience_ns: int) -> list[tuple[int, int, int]]:
        patience.append(patience_ns)
        changing.set()
        return _C.finish_launched(patience_ns)

    def record() -> None:
        changing.wait()
        gate.record(torch.npu.default_stream())

    asked = SimpleNamespace(finish_launched=finish, read_switches=_C.read_switches)
    monkeypatch.setattr(global_state, "_C", asked)
    thread = threading.Thread(target=record)
    thread.start()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch._C._set_mkldnn_enabled(False)
    thread.join()

    assert patience == [100_000_000_000]
    assert seen == [True]


def test_warnings_instead_of_errors_are_a_mode_of_their_own():
    x = torch.zeros(4, device="npu")
    put(x)
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match="put_ does not have a deterministic"):
        put(x)
    torch.npu.synchronize()

    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
        put(x)
    torch.use_deterministic_algorithms(True, warn_only=True)
    put(x)
    torch.npu.synchronize()


def test_a_replay_runs_under_the_switches_of_its_capture():
    x = torch.zeros(4, device="npu")
    put(x)
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    index = torch.tensor([0, 1], device="npu")
    source = torch.tensor([5.0, 6.0], device="npu")
    torch.npu.synchronize()
    with torch.npu.graph(graph):
        x.put_(index, source)
    x.zero_()

    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
        x.put_(index, source)
    graph.replay()
    torch.npu.synchronize()

    assert x.tolist() == [5, 6, 0, 0]
    assert torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(False)
    x.zero_()
    graph.replay()
    assert x.tolist() == [5, 6, 0, 0]


def test_a_replay_gives_back_the_switches_that_it_changed():
    x = torch.ones(8, 8, device="npu")
    x @ x
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.backends.mkldnn.flags(enabled=False), torch.npu.graph(graph):
        y = x @ x
    for _ in range(2):
        graph.replay()
        assert torch._C._get_mkldnn_enabled()
    assert y.eq(8).all().item()


def test_a_replay_does_not_wait_where_the_switches_are_those_of_its_capture():
    x = torch.ones(8, device="npu")
    x + 1
    torch.npu.synchronize()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = x + 1
    torch._C._set_mkldnn_enabled(False)
    torch._C._set_mkldnn_enabled(True)
    gate, stream = torch.npu.ExternalEvent(), torch.npu.Stream()
    gate.wait(stream)
    with torch.npu.stream(stream):
        graph.replay()

    assert not stream.query()
    gate.record()
    stream.synchronize()
    assert y.tolist() == [2.0] * 8
