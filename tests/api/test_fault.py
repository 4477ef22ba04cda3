"""Stopping and restarting a device, and injected faults."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from open_waits import until_waiting


@pytest.fixture
def restart():
    yield
    torch.npu.restart_device(0)


def test_a_stopped_device_drops_its_queue_and_takes_work_again():
    gate, stream = torch.npu.ExternalEvent(), torch.npu.Stream()
    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    gate.wait(stream)
    with torch.npu.stream(stream):
        x += 1

    assert torch.npu.stop_device(0) == 0

    with pytest.raises(RuntimeError, match="FORCE STOP"):
        stream.synchronize()
    with pytest.raises(RuntimeError, match="FORCE STOP"):
        torch.ones(1, device="npu") + 1
    torch.npu.restart_device(0, rebuild_all_resources=True)
    assert x.tolist() == [0] * 4  # the addition never ran
    with torch.npu.stream(stream):
        x += 2
    stream.synchronize()
    assert x.tolist() == [2] * 4


def test_a_blocked_waiter_is_freed(restart):
    stream = torch.npu.Stream()
    torch.npu.ExternalEvent().wait(stream)

    with ThreadPoolExecutor() as pool:
        waits = pool.submit(stream.synchronize)
        until_waiting("stream_sync")
        assert not waits.done()
        torch.npu.stop_device(0)

        assert "FORCE STOP" in str(waits.exception())


def test_a_blocked_producer_is_freed(restart):
    stream = torch.npu.Stream()
    torch.npu.ExternalEvent().wait(stream)
    given = 0

    def produce() -> None:
        nonlocal given
        with torch.npu.stream(stream):
            while True:
                torch.npu._sleep(1)
                given += 1

    with ThreadPoolExecutor() as pool:
        produces = pool.submit(produce)
        until_waiting("full_queue")
        full = given
        assert not produces.done()
        torch.npu.stop_device(0)

        assert "FORCE STOP" in str(produces.exception())
    assert full >= 8191  # with the wait, all that the queue holds


def test_a_stream_that_waits_for_another_is_freed(restart):
    first, second = torch.npu.Stream(), torch.npu.Stream()
    torch.npu.ExternalEvent().wait(first)
    second.wait_stream(first)

    torch.npu.stop_device(0)

    with pytest.raises(RuntimeError, match="FORCE STOP"):
        second.synchronize()


def test_the_other_device_goes_on(python):
    code = """
import npu_dispatch, torch
x = torch.ones(2, device="npu:1")
torch.ones(2, device="npu:0")
torch.npu.stop_device(0)
assert (x + 1).tolist() == [2, 2]
torch.npu.restart_device(0)
print((torch.ones(2, device="npu:0") + 1).tolist())
"""
    assert python(code, NPU_DISPATCH_DEVICES="2").stdout.strip() == "[2.0, 2.0]"


@pytest.mark.parametrize("call", ["stop_device", "restart_device"])
def test_a_device_is_named_by_a_valid_index(call):
    function = getattr(torch.npu, call)
    with pytest.raises(TypeError, match="device_id must be an int"):
        function("npu:0")
    with pytest.raises(RuntimeError, match="99"):
        function(99)


def test_memory_faults_are_placed():
    from npu_dispatch.npu.vendor.faults import _inject_memory_fault

    x = torch.empty(5 << 20, dtype=torch.uint8, device="npu")
    address = x.data_ptr()
    try:
        assert torch.npu.check_uce_in_memory(0) == 0
        _inject_memory_fault(0, address)
        assert torch.npu.check_uce_in_memory(0) == 3
        del x
        assert torch.npu.check_uce_in_memory(0) == 2
        _inject_memory_fault(0, 4096)
        assert torch.npu.check_uce_in_memory(0) == 1
    finally:
        _inject_memory_fault(0, None)


def test_stress_detection_passes_or_says_what_was_injected():
    from npu_dispatch.npu.vendor.faults import _inject_stress_result

    assert torch.npu.stress_detect() == 0
    _inject_stress_result(2)
    try:
        assert torch.npu.stress_detect("aic") == 2
    finally:
        _inject_stress_result(0)
    for kind in ("hccs", "other"):
        with pytest.warns(UserWarning):
            assert torch.npu.stress_detect(kind) == 1
