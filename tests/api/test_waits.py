"""Who waits: no getter, no query. And what waits lets other threads run."""

import signal
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from open_waits import waiting

npu = torch.npu


class Held:
    """A stream with work in it that does not end before release()."""

    def __init__(self) -> None:
        self.stream = npu.Stream()
        self.tensor = torch.zeros(4, device="npu")
        self.tensor.record_stream(self.stream)
        self.first = npu.Event(enable_timing=True)
        self.event = npu.Event(enable_timing=True)
        self.blocking = npu.Event(blocking=True)
        self.shared = npu.Event(interprocess=True)
        npu.synchronize()
        self._gate = npu.ExternalEvent()
        self._gate.wait(self.stream)
        self.first.record(self.stream)
        with npu.stream(self.stream):
            self.tensor.add_(1)
        self.event.record(self.stream)
        self.blocking.record(self.stream)
        self.shared.record(self.stream)

    def release(self) -> None:
        self._gate.record(npu.default_stream())


@pytest.fixture
def held() -> Iterator[Held]:
    one = Held()
    yield one
    one.release()
    npu.synchronize()
    del one.tensor


GETTERS: dict[str, Callable[[Held], object]] = {
    "npu_stream": lambda h: h.stream.npu_stream,
    "hash": lambda h: hash(h.stream),
    "repr": lambda h: repr(h.stream) + repr(h.event) + repr(npu.ExternalEvent()),
    "==": lambda h: h.stream == npu.default_stream(),
    "priority": lambda h: h.stream.priority,
    "device": lambda h: (h.stream.device, h.stream.stream_id, h.stream.device_index),
    "_as_parameter_": lambda h: h.stream._as_parameter_,
    "Stream.query": lambda h: h.stream.query(),
    "Event.query": lambda h: h.event.query() or h.blocking.query(),
    "event_id": lambda h: (h.event.npu_event, h.event.event_id, h.event.device),
    "record": lambda h: npu.Event().record(h.stream),
    "wait_event": lambda h: npu.Stream().wait_event(npu.Event()),
    "wait_stream": lambda h: h.stream.wait_stream(npu.Stream()),
    "current_stream": lambda h: npu.current_stream() == npu.default_stream(),
    "stream context": lambda h: (
        npu.stream(h.stream).__enter__() or npu.set_stream(npu.default_stream())
    ),
    "ExternalStream": lambda h: npu.ExternalStream(h.stream.npu_stream).query(),
    "stream_error": lambda h: npu.stream_error(h.stream),
    "is_current_stream_capturing": lambda h: npu.is_current_stream_capturing(),
    "memory": lambda h: (npu.memory_stats(), npu.memory_snapshot(), npu.mem_get_info()),
    "memory history": lambda h: npu.memory._snapshot(),
    "memory_summary": lambda h: npu.memory_summary(),
    "allocation": lambda h: torch.empty(1000, device="npu"),
    "utilization": lambda h: (npu.utilization(), npu.memory_usage()),
    "sensors": lambda h: (npu.temperature(), npu.power_draw(), npu.clock_rate()),
    "processes": lambda h: npu.list_gpu_processes(),
    "properties": lambda h: (npu.get_device_properties(), npu.get_device_name()),
    "random state": lambda h: (npu.get_rng_state(), npu.initial_seed()),
    "reseeding": lambda h: npu.set_rng_state(npu.get_rng_state()),
    "tensor facts": lambda h: (h.tensor.shape, h.tensor.data_ptr(), h.tensor.stride()),
    "tensor type": lambda h: (h.tensor.type(), isinstance(h.tensor, npu.FloatTensor)),
    "torch.accelerator": lambda h: torch.accelerator.memory_stats(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", GETTERS)
def test_a_getter_does_not_wait(name, held, sensors):
    with npu.sync_guard("error"):
        GETTERS[name](held)

    # It came back, and what it would have waited for is still to come.
    assert not held.stream.query()


WAITS: dict[str, Callable[[Held], object]] = {
    "Stream.synchronize": lambda h: h.stream.synchronize(),
    "Event.synchronize": lambda h: h.event.synchronize(),
    "blocking event": lambda h: h.blocking.synchronize(),
    "interprocess event": lambda h: h.shared.synchronize(),
    "elapsed_time": lambda h: h.first.elapsed_time(h.event),
    "recorded_time": lambda h: h.event.recorded_time(),
    "synchronize": lambda h: npu.synchronize(),
    "torch.accelerator": lambda h: torch.accelerator.synchronize(),
    "generic event": lambda h: torch.Event.synchronize(h.event),
    "set_compile_mode": lambda h: npu.set_compile_mode(),
    "item": lambda h: on(h, lambda: h.tensor[0].item()),
    "tolist": lambda h: on(h, lambda: h.tensor.tolist()),
    "cpu": lambda h: on(h, lambda: h.tensor.cpu()),
    "bool": lambda h: on(h, lambda: bool(h.tensor[0] > 0)),
    "equal": lambda h: on(h, lambda: torch.equal(h.tensor, h.tensor + 1)),
    "nonzero": lambda h: on(h, lambda: h.tensor.nonzero()),
    "overflow": lambda h: on(h, lambda: npu.utils.npu_check_overflow(h.tensor)),
    "repr": lambda h: on(h, lambda: repr(h.tensor)),
    "empty_cache": lambda h: npu.empty_cache(),
    "clear_error": lambda h: npu.clear_error(h.stream),
    "generic stream": lambda h: torch.Stream.synchronize(h.stream),
    "npuDeviceSynchronize": lambda h: npu.npurt().npuDeviceSynchronize(),
    "stress_detect": lambda h: npu.stress_detect(),
    "numpy": lambda h: on(h, lambda: h.tensor.numpy(force=True)),
}


def on(held: Held, call: Callable[[], object]) -> None:
    with npu.stream(held.stream):
        call()


def held_for(name: str) -> Held:
    held = Held()
    if name == "empty_cache":  # what a free segment's stream still does to it
        with npu.stream(held.stream):
            torch.empty(64 << 20, dtype=torch.uint8, device="npu")
    return held


@pytest.mark.parametrize("name", WAITS)
def test_a_wait_lets_other_threads_run(name):
    held = held_for(name)
    before, errors = waiting(), []

    def wait() -> None:
        try:
            WAITS[name](held)
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    # This thread runs Python while the other is in the wait.
    while waiting() == before and thread.is_alive():
        pass
    assert thread.is_alive(), f"{name} did not wait: {errors}"
    assert not held.stream.query()
    held.release()
    thread.join(60)

    assert not thread.is_alive() and not errors
    npu.synchronize()


@pytest.mark.parametrize("name", WAITS)
def test_ctrl_c_ends_a_wait(name):
    held = held_for(name)
    before, target, over = waiting(), threading.get_ident(), threading.Event()

    def interrupt() -> None:
        while waiting() == before and not over.is_set():
            pass
        signal.pthread_kill(target, signal.SIGINT)
        # A wait that takes no notice ends all the same, and the test fails.
        if not over.wait(20):
            held.release()

    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            WAITS[name](held)
        assert not held.stream.query()
    finally:
        over.set()
        thread.join()
        held.release()
        npu.synchronize()
