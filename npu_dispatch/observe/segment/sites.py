"""What each Python line has launched and where the host waited, added up by line.

Several call stacks can end in one line, and each of them has an entry.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from npu_dispatch.observe.segment.values import OpenWait, SiteTasks, SiteWaits

__all__ = ["SiteEntry", "short", "tasks_by_line", "waits_by_line"]


def short(line: str) -> str:
    """Return "train.py:12 in step" of "/long/way/train.py:12 in step"."""
    place, of, function = line.partition(" in ")
    return place.rpartition("/")[2] + of + function


class SiteEntry(NamedTuple):
    """One call stack: its innermost line, and the counts of layout.SITE."""

    at: str
    reason: str  # of the newest wait
    waits: int
    wait_ns: int
    tasks: int
    ns: int


def waits_by_line(
    entries: Iterable[SiteEntry], lasting: Iterable[OpenWait]
) -> list[SiteWaits]:
    """Return what host waits cost, those that last included; the costliest first."""
    found: dict[str, SiteWaits] = {}

    def add(line: str, reason: str, waits: int, ns: int) -> None:
        if other := found.get(line):
            waits, ns = waits + other.waits, ns + other.wait_ns
        found[line] = SiteWaits(line, reason, waits, ns)

    for entry in entries:
        if entry.waits:
            add(entry.at, entry.reason, entry.waits, entry.wait_ns)
    for wait in lasting:
        if wait.at:
            add(wait.at, wait.reason, 1, wait.ns)
    return sorted(found.values(), key=lambda site: -site.wait_ns)


def tasks_by_line(entries: Iterable[SiteEntry]) -> list[SiteTasks]:
    """Return what the sampled tasks of each line cost; the most tasks first."""
    found: dict[str, SiteTasks] = {}
    for entry in entries:
        if entry.tasks:
            other = found.get(entry.at, SiteTasks(entry.at, 0, 0))
            found[entry.at] = SiteTasks(
                entry.at, entry.tasks + other.tasks, entry.ns + other.ns
            )
    return sorted(found.values(), key=lambda site: -site.tasks)
