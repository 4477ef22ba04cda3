"""Dates of monotonic moments: a moment that does not move has one date."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pytest

from npu_dispatch.observe.segment import clock

S = 10**9
DAY_NS = 86_400 * S
START_NS = 1_700_000_000 * S


class Machine:
    """Two clocks that go on by 50 ns at each reading, and at times stop for long."""

    def __init__(self, stops: Iterator[int]) -> None:
        self.stops = stops
        self.uptime_ns = DAY_NS
        self.offset_ns = START_NS

    def monotonic_ns(self) -> int:
        self.uptime_ns += 50 + next(self.stops)
        return self.uptime_ns

    def time_ns(self) -> int:
        return self.monotonic_ns() + self.offset_ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    # The scheduler takes the processor away for 8 ms at every seventh reading.
    machine = Machine(itertools.cycle((0, 0, 8_000_000, 0, 0, 0, 3)))
    monkeypatch.setattr(time, "monotonic_ns", machine.monotonic_ns)
    monkeypatch.setattr(time, "time_ns", machine.time_ns)
    monkeypatch.setattr(clock, "_known_ns", None)
    return machine


def test_a_moment_has_one_date_however_late_a_thread_reads_the_clocks(machine: Machine):
    dates = {clock.unix_ns(5 * S) for _ in range(100)}

    assert len(dates) == 1
    assert abs(dates.pop() - (START_NS + 5 * S)) < 1000


@pytest.mark.parametrize("step", [5 * S, -5 * S, 2_000_000])
def test_it_follows_a_date_that_is_set_at_once(machine: Machine, step: int):
    before = clock.unix_offset_ns()
    machine.offset_ns += step

    assert abs(clock.unix_offset_ns() - before - step) < 1000


def test_it_is_the_offset_of_this_machines_clocks():
    # Read before and after: the date of now lies between.
    before = time.time_ns()
    now = clock.unix_ns(time.monotonic_ns())
    assert before - 1_000_000 <= now <= time.time_ns() + 1_000_000
