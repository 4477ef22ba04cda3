"""What to change first, as a report says it, and its figures in three digits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from npu_dispatch.plan.report import Report

__all__ = ["advice", "choice", "factor_text", "fastest", "memory_text", "time_text"]

_MOST = 4
# A change that gains less of a step than this is not worth a sentence.
_LEAST_SHARE = 0.03
# A device that waits so much for launches does not show how fast it is.
_MOSTLY = 0.75
# Where a refusal's reason goes into details: a place, or a second clause.
_DETAIL = re.compile(r" at \S+:\d+|; |: ")
_TIMES = (("µs", 1.0), ("ms", 1e3), ("s", 1e6))
_SIZES = (("KiB", 2.0**10), ("MiB", 2.0**20), ("GiB", 2.0**30))


# By whether the program trains.
_GRAPHS = {True: "compile_step", False: "torch.npu.graph"}


class Advice(NamedTuple):
    text: str
    gain_us: float  # of a step, at most


def advice(report: Report) -> list[Advice]:
    """Return what to do, worst first. That a program does not fit is the worst."""
    every = [*_waits(report), *_graph(report), *_limit(report), *_ranks(report)]
    every.sort(key=lambda one: -one.gain_us)
    return [*_memory(report), *every][:_MOST]


def fastest(reports: Sequence[Report]) -> Report | None:
    """Return the one with the shortest step, of the devices that hold the program."""
    fitting = [report for report in reports if not report.too_much]
    return min(fitting, key=lambda report: report.step_us, default=None)


def choice(reports: Sequence[Report]) -> str:
    """Return which device to take, or "" where there is no choice."""
    best = fastest(reports)
    if len(reports) < 2:
        return ""
    if best is None:
        return "The program fits on none of these devices."
    text = f"Shortest step: {best.device}, {time_text(best.step_us)}."
    others = [r for r in reports if r is not best and not r.too_much]
    if others and all(r.launch_bound > _MOSTLY for r in (best, *others)):
        return f"{text} All of them wait for launches: a faster one is wasted."
    near = [r.device for r in others if r.step_us <= best.step_us * (1 + _LEAST_SHARE)]
    if near:
        verb = "is" if len(near) == 1 else "are"
        text += f" {' and '.join(near)} {verb} as fast: the host is the limit."
    return text


def _memory(report: Report) -> Iterator[Advice]:
    if report.too_much:
        at = f" at {line_text(report.too_much_at)}" if report.too_much_at else ""
        yield Advice(
            f"It does not fit: {size_text(report.too_much)} too much{at}; a smaller "
            "batch or activation checkpointing is needed.",
            report.step_us,
        )


def _waits(report: Report) -> Iterator[Advice]:
    # A full queue is no fault of the line that met it.
    waits = [b for b in report.blames if b.reason not in ("launches", "full_queue")]
    waits.sort(key=lambda blame: -blame.idle_us)
    for place, wait in enumerate(waits):
        worst = place == 0 and report.verdict == "blocked on syncs"
        if worst or wait.idle_us >= _LEAST_SHARE * report.step_us:
            yield Advice(
                f"Remove the wait at {line_text(wait.where)} ({wait.reason}): the "
                f"device is idle for {time_text(wait.idle_us)} of each "
                f"{time_text(report.step_us)} step because of it.",
                wait.idle_us,
            )


def _graph(report: Report) -> Iterator[Advice]:
    graph = report.graph
    if graph is None:
        return
    if graph.step_us is None:
        gain = report.launch_bound * report.step_us
        line = f"{line_text(graph.where)}: " if graph.where else ""
        why = _DETAIL.split(graph.why_not.removeprefix("npu: "))[0].rstrip(".")
        text = (
            f"The script cannot be captured as it is: {line}{why}. A step in a graph "
            f"would save up to {time_text(gain)} of {time_text(report.step_us)}."
        )
    else:
        gain = report.step_us - graph.step_us
        trains = report.step_is.startswith("a step of")
        text = (
            f"Capture the step in a graph ({_GRAPHS[trains]}): "
            f"{factor_text(report.step_us / graph.step_us)} faster, "
            f"{time_text(graph.step_us)} a step."
        )
    if gain >= _LEAST_SHARE * report.step_us:
        yield Advice(text, gain)


def _limit(report: Report) -> Iterator[Advice]:
    """Say what a faster host or device would gain."""
    if report.verdict == "launch-bound":
        faster = "host"
        text = (
            "A faster device is wasted: the step waits for launches "
            f"{report.launch_bound:.0%} of its time"
        )
    elif report.verdict == "device-bound":
        faster = "device"
        text = (
            f"The device is the limit: it works {report.device_bound:.0%} of the step"
        )
        for top in report.operators[:1]:
            text += f", {time_text(top.device_us)} of it in {top.name}"
    else:
        return
    changes = {change.what: change for change in report.what_if}
    change = changes.get(f"{faster} 2x faster")
    gain = report.step_us - change.step_us if change else 0.0
    if change and gain >= _LEAST_SHARE * report.step_us:
        text += f"; a {faster} twice as fast gives {factor_text(change.speedup)}"
    elif change:
        gain = 0.0
        text = (
            f"The host is as busy as the device is: {report.device_bound:.0%} of the "
            "step. Only both faster is faster"
        )
    yield Advice(f"{text}.", gain)


def _ranks(report: Report) -> Iterator[Advice]:
    """The most ranks are what the program is meant for."""
    if not report.ranks:
        return
    most = max(report.ranks, key=lambda rank: rank.ranks)
    if most.exposed_us >= _LEAST_SHARE * most.step_us:
        yield Advice(
            f"Overlap communication with work, or send less: on {most.ranks:,} ranks "
            f"{time_text(most.exposed_us)} of each {time_text(most.step_us)} step only "
            f"waits for others (bound by: {most.bound_by}).",
            most.exposed_us,
        )


def time_text(us: float, least: float = 0.0, most: float = 0.0) -> str:
    """Return "5.28 ms", and a range behind it where one is known."""
    unit, size = _unit(us, _TIMES)
    text = f"{_digits(us / size)} {unit}"
    if not most:
        return text
    return f"{text} ({_digits(least / size)}\N{EN DASH}{_digits(most / size)})"


def size_text(size: float) -> str:
    unit, of = _unit(size, _SIZES)
    return f"{_digits(size / of)} {unit}"


def memory_text(used: int, there: int, too_much: int = 0) -> str:
    """Return "12.3 GiB of 80.0 GiB, 3.00 GiB too much"."""
    text = f"{size_text(used)} of {size_text(there)}" if there else size_text(used)
    return f"{text}, {size_text(too_much)} too much" if too_much else text


def factor_text(factor: float) -> str:
    return f"{_digits(factor)}x"


def line_text(where: str) -> str:
    """Return "train.py:12" of "/home/ada/train.py:12 in step"."""
    return Path(where.partition(" in ")[0]).name


def _unit(value: float, units: tuple[tuple[str, float], ...]) -> tuple[str, float]:
    """Return the largest unit of which there is at least one, with three digits."""
    fitting = [unit for unit in units if value >= 0.9995 * unit[1]]
    return fitting[-1] if fitting else units[0]


def _digits(value: float) -> str:
    """Return three significant digits; no more decimals than tell anything."""
    if value < 0.0005:
        return "0"
    if value >= 999.5:
        return f"{value:,.0f}"
    return f"{value:#.3g}".rstrip(".")
