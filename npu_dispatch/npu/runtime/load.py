"""How busy the devices are, and what else a board would report.

A virtual device computes on this machine's cores, so its sensors are theirs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from npu_dispatch import _C
from npu_dispatch.npu.runtime.devices import Device, checked_index
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.layout import SAMPLE_PERIOD
from npu_dispatch.observe.segment.values import StreamStats

# What psutil calls the sensors of processors.
_OF_CORES = ("coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal")
# The energy that the processors have used, in uJ (Intel's and AMD's RAPL).
_ENERGY = Path("/sys/class/powercap")
_POWER_WINDOW_S = 0.1
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_SHORTEST_WINDOW_NS = 10 * _TICK_NS  # the threads' clock has such coarse ticks


def _streams(index: int) -> list[StreamStats]:
    path = _C.segment_path()
    if not path:
        return []
    with StatsReader(Path(path)) as reader:
        return [stream for stream in reader.streams() if stream.device == index]


def _computing_ns(index: int) -> int:
    """Return how long a device has computed so far, all streams together.

    Where launchers run the kernels, this is the launchers' processor time. A device
    that runs kernels by itself computes while a stream has tasks and waits for none.
    """
    streams = _streams(index)
    if _C.reports_ends():
        busy: int = sum(stream.busy_ns for stream in streams)
        return busy
    ran = {t.id: t.user_time + t.system_time for t in psutil.Process().threads()}
    seconds: float = sum(ran.get(stream.thread, 0.0) for stream in streams)
    return round(1e9 * seconds)


class _Window:
    """By how many percent of the time since the last look a counter of ns has grown.

    The first look takes a short time, because what the counter has grown by since the
    process began says nothing about now.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[int, tuple[int, int]] = {}
        self._percent: dict[int, int] = {}

    def percent(self, index: int, read: Callable[[int], int]) -> int:
        with self._lock:
            if index not in self._last:
                self._last[index] = time.monotonic_ns(), read(index)
                time.sleep(_SHORTEST_WINDOW_NS / 1e9)
            then, before = self._last[index]
            now = time.monotonic_ns()
            if now - then < _SHORTEST_WINDOW_NS and index in self._percent:
                return self._percent[index]
            counter = read(index)
            busy = 100 * (counter - before) // (now - then)
            self._last[index] = now, counter
            self._percent[index] = max(0, min(100, busy))
            return self._percent[index]


_compute, _copies = _Window(), _Window()


def utilization(device: Device = None) -> int:
    """Return the percent (0-100) of the time that the device was computing.

    This is about the time since the last call; the first call watches for a tenth of a
    second. A call soon after another repeats its answer. Mirrors
    torch.cuda.utilization.
    """
    return _compute.percent(checked_index(device), _computing_ns)


def _copying_ns(index: int) -> int:
    """Return how long a device's streams have spent on copies so far.

    The statistics measure one task in so many, which stands for the rest.
    """
    sampled: int = sum(
        stream.run_ns[kind].sum
        for stream in _streams(index)
        for kind in ("h2d", "d2h", "d2d")
    )
    return SAMPLE_PERIOD * sampled


def memory_usage(device: Device = None) -> int:
    """Return the percent (0-100) of the time that its streams were copying.

    The time is that of utilization(). Copies are estimated from the tasks that the
    statistics measure, one of 16. Mirrors torch.cuda.memory_usage.
    """
    return _copies.percent(checked_index(device), _copying_ns)


def temperature(device: Device = None) -> int:
    """Return the degrees Celsius of the hottest of this machine's cores.

    Raises RuntimeError where they have no sensor. Mirrors torch.cuda.temperature.
    """
    checked_index(device)
    sensors = psutil.sensors_temperatures()
    found = [one.current for name in _OF_CORES for one in sensors.get(name, [])]
    if not found:
        raise RuntimeError(_without("temperature sensor of its cores"))
    hottest: float = max(found)
    return round(hottest)


def power_draw(device: Device = None) -> int:
    """Return the milliwatts that this machine's processors draw, by RAPL.

    Watches for a tenth of a second. Raises RuntimeError where there is no RAPL, or
    where this user must not read it. Mirrors torch.cuda.power_draw.
    """
    checked_index(device)
    try:
        before, began = _energy_uj(), time.monotonic()
        time.sleep(_POWER_WINDOW_S)
        return round((_energy_uj() - before) / (time.monotonic() - began) / 1e3)
    except OSError as error:
        raise RuntimeError(f"{_without('power meter')}: {error}") from None


def _energy_uj() -> int:
    # One for each package: intel-rapl:0, and not its parts, intel-rapl:0:1.
    meters = [p for p in _ENERGY.glob("*:*") if p.name.count(":") == 1]
    if not meters:
        raise FileNotFoundError(f"{_ENERGY} names none")
    return sum(int((meter / "energy_uj").read_text()) for meter in meters)


def clock_rate(device: Device = None) -> int:
    """Return the megahertz of the first of this machine's cores.

    Raises RuntimeError where they are not known. Mirrors torch.cuda.clock_rate.
    """
    checked_index(device)
    with contextlib.suppress(OSError, NotImplementedError):
        for core in psutil.cpu_freq(percpu=True):
            return int(core.current)
    raise RuntimeError(_without("clock of its cores"))


def _without(what: str) -> str:
    return (
        f"this machine tells no {what}; a virtual device computes on the machine's "
        "cores and has no sensors of its own"
    )
