"""What the devices report of themselves."""

from __future__ import annotations

import os
import threading
from types import SimpleNamespace

import pytest
import torch

SENSORS = ["utilization", "memory_usage", "temperature", "power_draw", "clock_rate"]


@pytest.mark.parametrize("name", SENSORS)
def test_a_sensor_gives_a_whole_number(name):
    value = getattr(torch.npu, name)(0)

    assert type(value) is int and value >= 0
    with pytest.raises(AssertionError, match="Invalid device id"):
        getattr(torch.npu, name)(99)
    with pytest.raises(ValueError, match="cpu"):
        getattr(torch.npu, name)("cpu")


def test_utilization_follows_the_load(monkeypatch: pytest.MonkeyPatch):
    from npu_dispatch.npu.monitoring import load

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
    from npu_dispatch.npu.monitoring.load import _Window

    assert _Window().percent(0, lambda index: 10**18) == 0


LOADED = """
import os
from pathlib import Path

import torch

from npu_dispatch.npu.monitoring.load import _computing_ns


def launcher_ticks():
    ticks = 0
    for task in Path("/proc/self/task").iterdir():
        name, _, fields = (task / "stat").read_text().rpartition(")")
        if "(npu0/s" in name:
            ticks += sum(map(int, fields.split()[11:13]))
    return ticks


torch.set_num_threads(1)  # others of a launcher's kernels would bear its name
x = torch.ones(512, 512, device="npu")
for stream in torch.npu.current_stream(), torch.npu.Stream():
    with torch.npu.stream(stream):
        for _ in range(20):
            x @ x
torch.npu.synchronize()
before = launcher_ticks()
computed = round(_computing_ns(0) * os.sysconf("SC_CLK_TCK") / 1e9)
print(0 < before <= computed <= launcher_ticks())
"""


def test_a_device_computes_as_long_as_its_launchers_run(python):
    assert python(LOADED).stdout.strip() == "True"


def test_copies_are_those_of_the_streams_and_not_waits_for_a_value():
    from npu_dispatch.npu.monitoring.load import _copying_ns

    x, host = torch.ones(1 << 20, device="npu"), torch.ones(1 << 20).pin_memory()
    torch.npu.synchronize()
    before = _copying_ns(0)
    for _ in range(200):
        (x.sum() + 1).item()
    assert _copying_ns(0) == before
    for _ in range(200):
        host.copy_(x, non_blocking=True)
    torch.npu.synchronize()
    assert _copying_ns(0) > before


def test_what_is_modelled_says_so():
    for name in ("temperature", "power_draw"):
        assert "not a measurement" in getattr(torch.npu, name).__doc__


def test_a_busy_device_is_seen_busy():
    from npu_dispatch.npu.monitoring.load import _computing_ns

    torch.ones(1, device="npu")
    before = _computing_ns(0)
    # Less is counted than the time of this work where others take the processor.
    while _computing_ns(0) - before < 30_000_000:
        torch.npu._sleep(30_000_000)
        torch.npu.synchronize()

    assert 0 <= torch.npu.utilization() <= 100


def test_temperature_and_power_stay_within_the_chips_range():
    assert 35 <= torch.npu.temperature() <= 75
    assert 60_000 <= torch.npu.power_draw() <= 310_000


def test_processes_are_listed_with_their_memory():
    x = torch.ones(4, device="npu")
    lines = torch.npu.list_gpu_processes(0).splitlines()

    assert lines[0] == "NPU:0"
    assert any(str(os.getpid()) in line and "MB" in line for line in lines[1:])
    del x


def test_architectures(python):
    assert torch.npu.get_arch_list() == ["virtual"]
    assert torch.npu.get_gencode_flags() == ""
    code = "import npu_dispatch, torch; print(torch.npu.get_arch_list())"
    assert python(code, NPU_DISPATCH_DEVICES="0").stdout.strip() == "[]"


def test_sensors_answer_on_any_thread():
    seen = []
    threads = [
        threading.Thread(target=lambda: seen.append(torch.npu.utilization()))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == 4
