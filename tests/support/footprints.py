"""What processes hold over hours: memory, descriptors, threads, counters in files."""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import psutil

_EVERY_S = 30.0
# Until caches have what a program needs. What is held later is compared with it.
_WARM_S = 600.0
_MORE = 1.05  # times so much memory is no growth: the allocator of libc keeps pages


class Footprint(NamedTuple):
    memory_mb: float
    descriptors: int
    threads: int


def _of(pid: int) -> Footprint:
    process = psutil.Process(pid)
    with process.oneshot():
        memory = process.memory_info().rss / 2**20
        return Footprint(round(memory, 1), process.num_fds(), process.num_threads())


class Footprints:
    """The least that each process has held, in each span of ten minutes.

    What it holds for a moment, such as a connection, is not in it; a leak is.
    """

    def __init__(self, shared: Path = Path("/dev/shm")) -> None:
        self._shared = shared
        self._began = time.monotonic()
        self._next = 0.0
        self._spans: dict[str, list[Footprint]] = {}
        self.files: list[tuple[int, float]] = []  # their number and MiB, by span

    def measure(self, pids: dict[str, int]) -> None:
        """Look at the processes by name, unless that was done a moment ago."""
        now = time.monotonic() - self._began
        if now < self._next:
            return
        self._next = now + _EVERY_S
        span = int(now / _WARM_S)
        for name, pid in pids.items():
            spans = self._spans.setdefault(name, [])
            held = _of(pid)
            if len(spans) > span:
                spans[-1] = Footprint(*map(min, spans[-1], held))
            else:
                spans.append(held)
        sizes = [file.stat().st_blocks * 512 for file in self._shared.rglob("*")]
        found = len(sizes), round(sum(sizes) / 2**20, 1)
        if len(self.files) > span:
            self.files[-1] = min(self.files[-1], found)
        else:
            self.files.append(found)

    def by_process(self) -> dict[str, list[Footprint]]:
        """Return what each process held after ten minutes, and at the end."""
        return {n: [s[min(1, len(s) - 1)], s[-1]] for n, s in self._spans.items()}

    def grown(self) -> list[str]:
        """Return the processes that hold more at the end than after ten minutes."""
        return [
            name
            for name, (warm, last) in self.by_process().items()
            if last.memory_mb > warm.memory_mb * _MORE
            or last.descriptors > warm.descriptors
            or last.threads > warm.threads
        ]
