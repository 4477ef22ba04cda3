"""What the devices report of themselves."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime import load

SENSORS = ["utilization", "memory_usage", "temperature", "power_draw", "clock_rate"]


@pytest.mark.parametrize("name", SENSORS)
def test_a_sensor_gives_a_whole_number_on_any_thread(name, sensors):
    with ThreadPoolExecutor() as pool:
        value = pool.submit(getattr(torch.npu, name), 0).result()

    assert type(value) is int and value >= 0


def test_utilization_follows_the_load(monkeypatch: pytest.MonkeyPatch):
    clock = SimpleNamespace(monotonic_ns=lambda: 10**15)
    monkeypatch.setattr(load, "time", clock)
    window = load._Window()
    window._last[0] = 1, 0  # long ago
    window._percent[0] = 0
    assert window.percent(0, lambda index: 10**30) == 100
    # A look too soon repeats its answer.
    assert window.percent(0, lambda index: 10**30) == 100
    window._last[0] = 1, 10**30
    assert window.percent(0, lambda index: 10**30) == 0


def test_the_first_look_tells_of_now_and_not_of_the_life_of_the_process():
    assert load._Window().percent(0, lambda index: 10**18) == 0


def test_sensors_are_those_of_the_cores(sensors, monkeypatch):
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds
        sensors.use(joules=2.5)

    fake = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    monkeypatch.setattr(load, "time", fake)

    assert torch.npu.temperature() == 61
    assert torch.npu.clock_rate() == 2400
    assert torch.npu.power_draw() == 25_000


@pytest.mark.parametrize("name", ["temperature", "power_draw", "clock_rate"])
def test_a_machine_without_a_sensor_says_so(name, sensors):
    sensors.remove()
    with pytest.raises(RuntimeError, match=r"this machine tells no .* no sensors of"):
        getattr(torch.npu, name)()


def test_a_device_computes_as_long_as_its_launchers_run(monkeypatch):
    for stream in (torch.npu.current_stream(), torch.npu.Stream()):
        with torch.npu.stream(stream):
            torch.ones(1, device="npu")
    torch.npu.synchronize()
    # A stream whose launches were all inline has none.
    launchers = {stream.thread for stream in load._streams(0)} - {0}
    names = [Path(f"/proc/self/task/{n}/comm").read_text() for n in launchers]
    threads = {os.getpid(), *launchers}
    ran = [SimpleNamespace(id=n, user_time=1.0, system_time=0.5) for n in threads]
    process = SimpleNamespace(threads=lambda: ran)
    monkeypatch.setattr(load, "psutil", SimpleNamespace(Process=lambda: process))
    # Of a driver that has its launchers run the kernels.
    runs = SimpleNamespace(reports_ends=lambda: False, segment_path=_C.segment_path)
    monkeypatch.setattr(load, "_C", runs)

    assert len(names) >= 2 and all(name.startswith("npu0/s") for name in names)
    assert load._computing_ns(0) == len(launchers) * 1_500_000_000


def test_copies_are_those_of_the_streams_and_not_waits_for_a_value():
    x, host = torch.ones(1 << 20, device="npu"), torch.ones(1 << 20).pin_memory()
    torch.npu.synchronize()
    before = load._copying_ns(0)
    for _ in range(200):
        (x.sum() + 1).item()
    assert load._copying_ns(0) == before
    for _ in range(200):
        host.copy_(x, non_blocking=True)
    torch.npu.synchronize()
    assert load._copying_ns(0) > before
