"""mstx and nvtx: marks, ranges, and what a trace says of them."""

import json
import logging
import time

import pytest
import torch

from npu_dispatch.npu.debugging import ranges as marks
from npu_dispatch.npu.debugging.ranges import recorder
from tests.ecosystem.both import in_threads

mstx, nvtx, profiler = torch.npu.mstx, torch.npu.nvtx, torch.npu.profiler


@pytest.fixture
def recorded(tmp_path):
    """Record inside the test; a call returns the events so far by name."""
    recorder.clear()
    profiler.start()

    def events():
        torch.npu.synchronize()
        profiler.export(tmp_path / "trace.json")
        found = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        return {(event["name"], event["pid"]): event for event in found}

    yield events
    profiler.stop()
    recorder.clear()


def test_nvtx_ranges_nest_and_count_their_depth():
    assert nvtx.range_push("a") == 0
    assert nvtx.range_push("b") == 1
    assert nvtx.range_pop() == 1
    assert nvtx.range_pop() == 0
    assert nvtx.range_pop() < 0


def test_a_stack_belongs_to_its_thread():
    seen = []
    nvtx.range_push("here")
    in_threads(lambda: seen.append(nvtx.range_pop()))

    assert seen == [-1]
    assert nvtx.range_pop() == 0


def test_ranges_enclose_what_happened_in_them(recorded):
    with nvtx.range("outer {}", 1):
        nvtx.mark("inside")
    number = nvtx.range_start("long")
    nvtx.range_end(number)
    events = recorded()

    outer, inside = events["outer 1", "host"], events["inside", "host"]
    assert outer["ts"] <= inside["ts"] <= outer["ts"] + outer["dur"]
    assert number >= 1 and ("long", "host") in events


def test_a_range_on_a_stream_has_device_times(recorded):
    stream, gate = torch.npu.Stream(), torch.npu.ExternalEvent()
    number = mstx.range_start("work", stream)
    gate.wait(stream)
    mstx.range_end(number)
    mstx.mark("moment", stream)
    # Between the host's end of the range and the device's, in microseconds.
    opened = time.monotonic_ns() / 1000
    gate.record()
    events = recorded()

    host, device = events["work", "host"], events["work", "npu:0"]
    assert device["ts"] >= host["ts"]
    assert host["ts"] + host["dur"] <= opened <= device["ts"] + device["dur"]
    moment = events["moment", "npu:0"]
    assert events["moment", "host"]["ts"] <= opened
    assert moment["ts"] >= device["ts"] + device["dur"]


def test_nothing_is_recorded_when_off():
    recorder.clear()
    stream = torch.npu.Stream()

    mstx.mark("x", stream)
    assert mstx.range_start("x", stream) >= 1
    nvtx.mark("x")

    assert recorder.marks() == []


@pytest.mark.parametrize("module", [mstx, nvtx])
def test_ranges_that_nobody_ends_are_not_kept_while_nobody_records(module, recwarn):
    kept = (marks if module is mstx else nvtx)._ranges._open
    before = len(kept)

    numbers = [module.range_start("x") for _ in range(100)]

    assert len(kept) == before and len(set(numbers)) == 100
    module.range_end(numbers[7])
    assert not recwarn.list


@pytest.mark.parametrize(
    "call",
    [
        lambda: mstx.mark(""),
        lambda: mstx.mark(7),
        lambda: mstx.mark("m", stream="s"),
        lambda: mstx.mark("m", stream=torch.npu.SyncLaunchStream()),
        lambda: mstx.mark("m", domain=3),
        lambda: mstx.range_end(10**9),
        lambda: mstx.range_end([]),
    ],
)
def test_bad_arguments_warn_and_return_the_default(call):
    with pytest.warns(UserWarning, match="mstx"):
        assert call() is None


def test_a_refused_range_has_the_default_number():
    with pytest.warns(UserWarning):
        assert mstx.range_start("") == 0
    with pytest.warns(UserWarning):
        assert mstx.range_push("x", domain="") == -1
    assert mstx.range_pop("empty") == -1


def test_whatever_else_goes_wrong_is_logged(monkeypatch, caplog):
    monkeypatch.setattr(marks.recorder, "on", True)
    monkeypatch.setattr(marks.recorder, "begin", None)
    with caplog.at_level(logging.ERROR):
        assert mstx.range_push("x") == -1

    assert "range_push" in caplog.text


def test_domains_have_their_own_stacks():
    assert mstx.range_push("a", domain="one") == 0
    assert mstx.range_push("b", domain="two") == 0
    assert mstx.range_push("c", domain="one") == 1
    assert [mstx.range_pop(d) for d in ("one", "one", "two")] == [1, 0, 0]


def test_a_range_may_end_on_another_thread(recorded):
    number = mstx.range_start("far")
    in_threads(lambda: mstx.range_end(number))

    assert ("far", "host") in recorded()


def test_annotated_functions_and_blocks_close_their_ranges(recorded):
    @mstx.mstx_range("called")
    def fails(x):
        """Doc."""
        raise KeyError(x)

    @mstx.annotate()
    def works(x):
        return x + 1

    with pytest.raises(KeyError):
        fails(1)
    assert works(1) == 2
    with mstx.annotate("block"):
        pass
    events = recorded()

    assert fails.__name__ == "fails" and fails.__doc__ == "Doc."
    assert {(n, "host") for n in ("called", "works", "block")} <= events.keys()


def test_profile_records_inside_only():
    recorder.clear()
    with profiler.profile():
        nvtx.mark("in")
    nvtx.mark("out")

    assert [mark.name for mark in recorder.marks()] == ["in"]
    recorder.clear()


def test_marking_a_failed_stream_raises_nothing(recorded):
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    torch.nn.functional.embedding(index, weight)
    with pytest.raises(IndexError):
        torch.npu.synchronize()

    with nvtx.range("on a failed stream"):
        nvtx.mark("mark")
    mstx.mark("mark", torch.npu.current_stream())
    torch.npu.clear_error()

    assert ("on a failed stream", "host") in recorded()


def test_nvtx_takes_whatever_it_is_given(caplog):
    class Textless:
        def __str__(self) -> str:
            raise ValueError("no text")

    with profiler.profile(), caplog.at_level(logging.ERROR):
        nvtx.mark(Textless())
        assert nvtx.range_push(Textless()) == 0
        assert nvtx.range_pop() == 0
        opened = nvtx.range_start(Textless())
        nvtx.range_end([])
        nvtx.range_end(opened)
        with nvtx.range("step {n} of {", 3):
            pass
    names = [mark.name for mark in recorder.marks()]
    recorder.clear()
    assert names[-1] == "step {n} of {" and names[0] == "Textless"
    assert "no text" in caplog.text
