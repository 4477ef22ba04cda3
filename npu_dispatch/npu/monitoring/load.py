"""How busy the devices are, and what else a board would report.

A virtual device has no sensors: temperature and power are functions of its
load. Load and memory are measured.
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
from npu_dispatch.npu.runtime.devices import _checked
from npu_dispatch.npu.runtime.index import Device, _get_device_index
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.stats import SAMPLE_PERIOD, StatsReader, StreamStats

__all__ = [
    "clock_rate",
    "memory_usage",
    "power_draw",
    "temperature",
    "utilization",
]

_IDLE_CELSIUS, _BUSY_CELSIUS = 35, 75
_IDLE_MILLIWATT, _BUSY_MILLIWATT = 60_000, 310_000
_NOMINAL_MHZ = 1000
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
_SHORTEST_WINDOW_NS = 10 * _TICK_NS  # the threads' clock has such coarse ticks


def _index(device: Device) -> int:
    _lazy_init()
    return _checked(_get_device_index(device, optional=True))


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
    return _compute.percent(_index(device), _computing_ns)


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
    return _copies.percent(_index(device), _copying_ns)


def temperature(device: Device = None) -> int:
    """Return degrees Celsius: 35 when idle to 75 at full load.

    It is a model of the load, not a measurement, as a virtual device has no sensors.
    """
    return _by_load(device, _IDLE_CELSIUS, _BUSY_CELSIUS)


def power_draw(device: Device = None) -> int:
    """Return milliwatts: 60000 when idle to 310000 at full load.

    It is a model of the load, not a measurement, as a virtual device has no sensors.
    """
    return _by_load(device, _IDLE_MILLIWATT, _BUSY_MILLIWATT)


def _by_load(device: Device, idle: int, busy: int) -> int:
    return idle + (busy - idle) * utilization(device) // 100


def clock_rate(device: Device = None) -> int:
    """Return megahertz: those of the first host core, or 1000 if none are known."""
    _index(device)
    with contextlib.suppress(OSError, NotImplementedError):
        for core in psutil.cpu_freq(percpu=True):
            return int(core.current)
    return _NOMINAL_MHZ
