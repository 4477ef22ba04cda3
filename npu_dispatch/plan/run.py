"""What a program does on a device: its tasks, its waits and its steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Run", "Task", "Wait"]


@dataclass(frozen=True, slots=True)
class Task:
    """One task; times in ns. `after`: the stream and number that it waits for."""

    name: str
    stream: tuple[int, int]
    number: int  # how many tasks of its stream are done with it
    submitted: float
    started: float
    ended: float
    depth: int
    runs: bool  # takes time of the device
    after: tuple[tuple[int, int], int] | None = None
    where: str = "?"  # the line that launched it
    collective: bool = False
    measured: bool = False  # its time is that of a device, and not of a sheet


@dataclass(frozen=True, slots=True)
class Wait:
    """The host waited for the device."""

    reason: str
    where: str
    begun: float
    ended: float


@dataclass(frozen=True, slots=True)
class Run:
    """Tasks in the order of their submissions, and waits as they began."""

    tasks: Sequence[Task]
    waits: Sequence[Wait]
    boundaries: Sequence[float]  # ends of steps, on the host
