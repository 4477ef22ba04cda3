"""The report of a recorded program for each device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from npu_dispatch.plan.analysis import Graph, Report, WhatIf, analyse
from npu_dispatch.plan.kernels.times import KernelTimes
from npu_dispatch.plan.network.ranks import Network, rank_times, with_collectives
from npu_dispatch.plan.recording import Recording
from npu_dispatch.plan.run import Run
from npu_dispatch.plan.sheet import Sheet
from npu_dispatch.plan.simulate import Speeds, run_of, step_ns
from npu_dispatch.plan.stated import measured_ns

__all__ = ["Memory", "Recorded", "Subject", "study"]

# The host of a replay: it launches once.
_NO_HOST = 1e9
# What is asked: how fast the parts are, how much work, and the gain of that.
_CASES = (
    ("host 2x faster", Speeds(host=2.0), 1.0),
    ("device 2x faster", Speeds(device=2.0), 1.0),
    ("both 2x faster", Speeds(host=2.0, device=2.0), 1.0),
    ("2x the work of each kernel", Speeds(work=2.0), 2.0),
    ("4x the work of each kernel", Speeds(work=4.0), 4.0),
)


@dataclass(frozen=True, slots=True)
class Recorded:
    run: Run
    report: Report


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes at most, and how they came to be: (bytes, line), growing."""

    allocated: int
    reserved: int
    growth: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """What was recorded of a program, beside its launches."""

    script: str
    step_is: str
    memory: Memory
    why_no_graph: tuple[str, str] | None  # what was said, and where
    captured: bool
    host_speed: float = 1.0  # of the host that is meant, divided by this one's
    notes: Sequence[str] = field(default_factory=tuple)


def study(
    recording: Recording,
    subject: Subject,
    sheet: Sheet,
    line_of: Callable[[int], str],
    kernels: KernelTimes | None = None,
    network: Network | None = None,
) -> Recorded:
    quiet, usual = recording.quiet()
    meant = subject.host_speed
    works = recording.program.works
    measured = measured_ns(works, kernels) if kernels else []
    stated = measured
    if network is not None:
        stated = with_collectives(measured, network.ns(works, network.ranks))

    def step(speeds: Speeds = Speeds()) -> float:  # noqa: B008 (frozen)
        faster = Speeds(speeds.host * meant, speeds.device, speeds.work)
        return step_ns(quiet, sheet, faster, stated)

    run = run_of(quiet, sheet, line_of, Speeds(host=meant), stated)
    seen = step()
    what_if = []
    for what, speeds, gain in _CASES:
        ns = step(speeds)
        what_if.append(WhatIf(what, ns / 1e3, gain * seen / ns if ns else 0.0))
    graph = None
    if subject.captured:
        ns = step(Speeds(host=_NO_HOST))
        graph = Graph(ns / 1e3, "", "")
        what_if.append(WhatIf("step in a graph", ns / 1e3, seen / ns if ns else 0.0))
    elif subject.why_no_graph:
        graph = Graph(None, *subject.why_no_graph)
    limit = int(sheet.numbers["memory"]["gib"] * 2**30)
    beyond = [line for size, line in subject.memory.growth if size > limit]
    most = max((size for size, _ in subject.memory.growth), default=0)
    report = analyse(
        run,
        sheet.name,
        step_ns=seen,
        step_is=subject.step_is,
        what_if=what_if,
        graph=graph,
        notes=subject.notes,
        script=subject.script,
        least_us=seen / 1e3,
        most_us=step(Speeds(host=1 / usual)) / 1e3,
        peak_allocated=subject.memory.allocated,
        peak_reserved=subject.memory.reserved,
        memory=limit,
        too_much=max(most - limit, 0),
        too_much_at=beyond[0] if beyond else "",
    )
    if network is not None:
        speeds = Speeds(host=meant)
        without = with_collectives(measured, network.ns(works, 1))
        alone = analyse(run_of(quiet, sheet, line_of, speeds, without), sheet.name)
        ranks = rank_times(quiet, sheet, network, alone, speeds, measured)
        report = replace(report, ranks=ranks)
    return Recorded(run, report)
