"""Defects of torch_npu that torch.npu must not have: the contract's list, in order."""

from __future__ import annotations

import logging
import threading

import pytest
import torch

npu = torch.npu


@pytest.fixture
def gate():
    """An event that holds a stream which waits for it, until it is recorded."""
    event = npu.ExternalEvent()
    yield event
    event.record(npu.default_stream())
    npu.synchronize()


def test_1_a_failed_deferred_call_raises_the_class_that_its_users_can_catch(python):
    code = """
import npu_dispatch, torch
torch.npu._lazy_call(lambda: 1 / 0)
try:
    torch.npu.init()
except torch.npu.DeferredNpuCallError as error:
    print(type(error.__cause__).__name__)
"""
    assert python(code).stdout.strip() == "ZeroDivisionError"


def test_2_what_can_be_set_can_be_read_and_a_summary_needs_no_runtime(python):
    code = """
import npu_dispatch, torch
print("Allocated memory" in torch.npu.memory_summary(), torch.npu.is_initialized())
torch.npu.config.allow_internal_format = False
print(torch.npu.config.allow_internal_format)
"""
    assert python(code).stdout.split() == ["True", "False", "False"]


def test_3_nothing_that_only_looks_waits_for_the_queue(gate):
    stream, event = npu.Stream(), npu.Event(enable_timing=True)
    gate.wait(stream)

    with npu.sync_guard("error"):
        text = f"{stream!r} {hash(stream)} {stream.npu_stream}"
        event.record(stream)
        assert not stream.query() and not event.query()

    assert f"npu_stream={stream.npu_stream:#x}" in text


def test_3_elapsed_time_lets_other_threads_run(gate):
    stream = npu.Stream()
    first, last = (npu.Event(enable_timing=True) for _ in range(2))
    first.record(stream)
    gate.wait(stream)
    last.record(stream)
    result: list[float] = []

    thread = threading.Thread(target=lambda: result.append(first.elapsed_time(last)))
    thread.start()
    gate.record(npu.default_stream())  # would never come if the thread kept the GIL
    thread.join(60)

    assert result and result[0] > 0


def test_4_a_sync_launch_stream_that_is_current_equals_the_current_one():
    stream = npu.SyncLaunchStream()

    with npu.stream(stream):
        assert npu.current_stream() == stream and stream == npu.current_stream()
        assert hash(npu.current_stream()) == hash(stream)
    assert npu.current_stream() != stream


def test_5_the_second_wait_for_an_external_event_is_refused_and_not_queued():
    stream, event = npu.Stream(), npu.ExternalEvent()
    event.wait(stream)

    with pytest.raises(RuntimeError, match="twice"):
        event.wait(stream)

    event.record(npu.default_stream())
    stream.synchronize()  # one record is enough: one wait is queued


@pytest.mark.parametrize(
    "switch",
    [
        lambda value: setattr(npu.matmul, "allow_hf32", value),
        lambda value: setattr(npu.conv, "allow_hf32", value),
        lambda value: setattr(npu.aclnn, "allow_hf32", value),
        lambda value: npu.aclnn.flags(value).__enter__(),
        lambda value: setattr(npu.config, "allow_internal_format", value),
        lambda value: npu.set_mm_bmm_format_nd(value),
        lambda value: npu.set_compile_mode(value),
        lambda value: npu.set_autocast_enabled(value),
        lambda value: npu.use_compatible_impl(value),
        lambda value: npu.set_strict_stream_pools(value),
    ],
)
def test_6_the_text_false_switches_nothing_on(switch):
    def kept() -> list[object]:
        return [
            npu.matmul.allow_hf32,
            npu.conv.allow_hf32,
            npu.config.allow_internal_format,
            npu.get_mm_bmm_format_nd(),
            npu.is_autocast_enabled(),
        ]

    before = kept()
    with pytest.raises(TypeError, match="bool"):
        switch("False")
    assert kept() == before


def test_6_set_option_leaves_its_argument_alone():
    option = {"ACL_OP_DEBUG_LEVEL": 2}
    npu.set_option(option)

    assert option == {"ACL_OP_DEBUG_LEVEL": 2}


@pytest.mark.parametrize("device", ["cpu", "cuda:0", torch.device("cpu")])
def test_7_a_device_of_another_type_is_not_the_current_npu(device):
    state = npu.get_rng_state()

    with pytest.raises(ValueError, match="npu"):
        npu.get_rng_state(device)
    with pytest.raises(ValueError, match="npu"):
        npu.set_rng_state(torch.zeros(16, dtype=torch.uint8), device)
    assert npu.get_rng_state().equal(state)


def test_8_mstx_range_closes_its_range_and_keeps_the_functions_name(tmp_path):
    from npu_dispatch.npu.ranges.marks import recorder

    @npu.mstx.mstx_range("r")
    def fails():
        raise KeyError("inside")

    recorder.clear()
    with npu.profiler.profile(), pytest.raises(KeyError):
        fails()
    [mark] = recorder.marks()
    recorder.clear()

    assert fails.__name__ == "fails" and mark.end_ns >= mark.start_ns > 0


def test_9_a_priority_is_kept_and_told_and_blocking_is_a_class_of_waits():
    low, high = npu.Stream.priority_range()

    assert npu.Stream(priority=high).priority == high < low == npu.Stream().priority
    # That it sleeps, without processor time: test_external.py.
    assert type(npu.Event(blocking=True)).synchronize is not npu.Event.synchronize


def test_nvtx_takes_whatever_it_is_given(caplog):
    class Textless:
        def __str__(self) -> str:
            raise ValueError("no text")

    with npu.profiler.profile(), caplog.at_level(logging.ERROR):
        npu.nvtx.mark(Textless())
        assert npu.nvtx.range_push(Textless()) == 0
        assert npu.nvtx.range_pop() == 0
        opened = npu.nvtx.range_start(Textless())
        npu.nvtx.range_end([])
        npu.nvtx.range_end(opened)
        with npu.nvtx.range("step {n} of {", 3):
            pass
    from npu_dispatch.npu.ranges.marks import recorder

    names = [mark.name for mark in recorder.marks()]
    recorder.clear()
    assert names[-1] == "step {n} of {" and names[0] == "Textless"
    assert "no text" in caplog.text
