"""Clocks that step while the program runs: results, timeouts, and what was measured.

`python -m tests.torture.clocks --seconds 60`; prints JSON. The wall clock is set
hours forward or back, and the monotonic clock goes forward by hours, as by a machine
that was suspended: before one step, or before each. It starts itself again with
stepping_clock.cpp in front of libc.
"""

import argparse
import ctypes
import itertools
import os
import random
from pathlib import Path
from typing import Any

import torch

from tests.torture import part, program, victims
from tests.torture.faults import start_again
from tests.torture.part import Told

HOUR_NS = 3600 * 10**9
# By how much the wall clock and the monotonic one step.
STEPS = {
    "forward": (5 * HOUR_NS, 0),
    "back": (-5 * HOUR_NS, 0),
    "suspended": (5 * HOUR_NS, 5 * HOUR_NS),
}
SOURCE = Path(__file__).resolve().with_name("stepping_clock.cpp")


def _step(kind: str) -> None:
    for which, ns in enumerate(STEPS[kind]):
        ctypes.CDLL(None).clock_step(which, ctypes.c_int64(ns))


def _wrong_times(most_ns: float) -> list[str]:
    """Return what was measured of this process that cannot be."""
    from npu_dispatch import _C
    from npu_dispatch.observe.segment import StatsReader
    from npu_dispatch.observe.segment.listing import Processes
    from npu_dispatch.observe.trace import trace

    found: dict[str, float] = {}
    with StatsReader(Path(_C.segment_path())) as reader:
        for s in reader.streams():
            of = f"stream {s.stream}: "
            for name in ("alive_ns", "idle_ns", "held_ns", "starved_ns"):
                found[of + name] = getattr(s, name)
            for name in ("queued_ns", "latency_ns", "call_ns", "launch_ns"):
                found[of + name] = getattr(s, name).sum
            found |= {of + kind: told.sum for kind, told in s.run_ns.items()}
            found |= {of + why: ns for why, (_, ns) in s.drains.items()}
        found |= {w.at: w.wait_ns for w in reader.waits_by_site()}
    with Processes(pid=os.getpid()) as processes:
        for view in processes.refresh():
            for stream in view.streams:
                if stream.oldest_since is not None:
                    found["oldest"] = (view.tick - stream.oldest_since) * 1e9
            if view.quiet_since is not None:
                found["quiet"] = (view.tick - view.quiet_since) * 1e9
    [process] = trace.of_past([os.getpid()], 1e6)
    for track in process.streams:
        for task in track.slices:
            found[f"{task.name} {task.position} waits"] = task.started - task.submitted
            found[f"{task.name} {task.position} runs"] = task.ended - task.started
    return [f"{name}: {ns} ns" for name, ns in found.items() if not 0 <= ns <= most_ns]


def case(kind: str, position: int, wanted: program.State) -> Told:
    """Step before one step of the program, or before all of them (-1)."""
    # Of a suspended machine, what ran meanwhile took so long.
    suspended = STEPS[kind][1] * (len(program.STEPS) + 2)
    most_ns = 600e9 + suspended * (1 if position < 0 else 2)

    def body() -> Told:
        os.environ["NPU_TRACE"] = "1"
        events: list[Any] = []

        def before(number: int, s: program.State) -> None:
            del s
            if position in (number, -1):
                _step(kind)
            events.append(torch.npu.Event(enable_timing=True))
            events[-1].record()

        result = victims.outcome(wanted, before=before)
        if "right" not in result:
            return {"bad": str(result)}
        times = [a.elapsed_time(b) for a, b in itertools.pairwise(events)]
        if wrong := [ms for ms in times if not 0 <= ms * 1e6 <= most_ns]:
            return {"bad": f"between events: {wrong} ms"}
        if wrong_times := _wrong_times(most_ns):
            return {"bad": f"measured: {wrong_times[:8]}"}
        if waits := ctypes.CDLL(None).clock_wall_waits():
            return {"bad": f"{waits} waits end where the wall clock is set"}
        return {**result, **victims.again(wanted)}

    return victims.in_child(body)


def campaign(asked: argparse.Namespace) -> Told:
    wanted, told = victims.expected(), part.sums(asked.seed)
    places = range(-1, len(program.STEPS) + 1)
    order = [(kind, position) for kind in STEPS for position in places]
    random.Random(asked.seed).shuffle(order)
    for kind, position in part.in_time(order, asked.seconds, told):
        part.add(told, case(kind, position, wanted), kind, position)
    return told


def one(kind: str, position: str) -> Told:
    return case(kind, int(position), victims.expected())


if __name__ == "__main__":
    part.main(
        __doc__,
        campaign,
        one=one,
        asks=("KIND", "POSITION"),
        start=lambda: start_again(SOURCE),
    )
