"""The report of a recorded program for a device, and for more ranks or fewer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npu_dispatch.plan.kernel_times import Kernel, KernelTimes, Told
from npu_dispatch.plan.report import Graph, RankTime, Report, WhatIf, analyse
from npu_dispatch.plan.simulate import Act, Recording, Run, Simulation
from npu_dispatch.plan.spec import Spec
from npu_dispatch.plan.topology import Topology

__all__ = ["Network", "Recorded", "counts", "study"]

_LEAST_TOLD = 1024
# What is asked: how fast the parts are, how much work, and the gain of that.
_CASES = (
    ("host 2x faster", {"host": 2.0}, 1.0),
    ("device 2x faster", {"device": 2.0}, 1.0),
    ("both 2x faster", {"host": 2.0, "device": 2.0}, 1.0),
    ("2x the work of each kernel", {"work": 2.0}, 2.0),
    ("4x the work of each kernel", {"work": 4.0}, 4.0),
)
# The host of a replay launches once.
_REPLAYED = ("step in a graph", {"host": 1e9}, 1.0)
# A recording knows the size of elements only. The more common type comes first.
TYPES = {
    8: ("float64", "int64"),
    4: ("float32", "int32"),
    2: ("bfloat16", "float16"),
    1: ("int8", "uint8", "bool"),
}


@dataclass(frozen=True, slots=True)
class Network:
    """A topology, and how many ranks of it the program was told that there are."""

    topology: Topology
    ranks: int

    def ns(
        self, works: Sequence[dict[str, Any]], meant: int, others: Sequence[float]
    ) -> list[float]:
        """Return the ns of each collective among so many ranks, and those of others."""
        return [
            self.time(work, meant)[0] if work["type"] == "collective" else other
            for work, other in zip(works, others, strict=True)
        ]

    def time(self, work: dict[str, Any], meant: int) -> tuple[float, str]:
        """Return the ns of a collective among so many ranks, and its link."""
        kind, group = work["kind"], work["ranks"]
        # A message has two ranks, whatever the size of the job.
        if kind != "send":
            group = _grown(group, self.ranks, meant)
        group = [rank for rank in group if rank < meant]
        if len(group) < 2:
            return 0.0, ""
        # As many such groups have ranks on the host of the first one.
        per_host = self.topology.per_host
        first = group[0] // per_host * per_host
        end = min(first + per_host, meant)
        members = sum(first <= rank < end for rank in group)
        seconds, link = self.topology.seconds(
            kind, work["bytes"], group, sharing=max((end - first) // members, 1)
        )
        return seconds * 1e9, link


def _grown(group: Sequence[int], recorded: int, meant: int) -> Sequence[int]:
    """Return the group in a job of another size.

    One that goes in equal strides up to the end of the job goes up to the end of the
    other one, too. That of tensor parallelism, say, stays as it is.
    """
    if recorded == 1:
        return range(meant)
    if len(group) < 2:
        return group
    stride = group[1] - group[0] or 1
    if list(group) != list(range(group[0], recorded, stride)):
        return group
    return range(group[0], meant, stride)


def counts(topology: Topology, ranks: int) -> list[int]:
    """Return the numbers of ranks to tell of: powers of two, and that of the job."""
    most = max(_LEAST_TOLD, ranks) if topology.across else topology.per_host
    return sorted({1 << i for i in range(most.bit_length())} | {ranks})


def _rank_times(
    recording: Recording,
    simulation: Simulation,
    network: Network,
    report: Report,
    measured: Sequence[float],
) -> list[RankTime]:
    """Return the times of a step on 1, 2, 4... ranks, and on those of the job.

    `report` is that of the job's, and `measured` are times of other work, where they
    are known.
    """
    works = recording.program.works
    entries = recording.entries
    launched = entries["what"][entries["act"] == Act.LAUNCH]
    calls = np.bincount(launched, minlength=len(works)).tolist()
    pairs = zip(works, calls, strict=True)
    collectives = [(work, n) for work, n in pairs if work["type"] == "collective"]
    least = simulation.step_ns(network.ns(works, 1, measured))
    parts = {
        "device": report.device_bound * report.step_us * 1e3,
        "launches": report.launch_bound * report.step_us * 1e3,
        "syncs": report.sync_bound * report.step_us * 1e3,
    }
    told = []
    for ranks in counts(network.topology, network.ranks):
        seen = simulation.step_ns(network.ns(works, ranks, measured))
        exposed = max(seen - least, 0.0)
        of_link: dict[str, float] = defaultdict(float)
        for work, n in collectives:
            ns, link = network.time(work, ranks)
            of_link[link] += ns * n
        link = max(of_link, key=lambda link: of_link[link], default="")
        all_parts = {**parts, link: exposed} if link else parts
        bound = max(all_parts, key=lambda part: all_parts[part])
        told.append(RankTime(ranks, seen / 1e3, exposed / 1e3, bound))
    return told


@dataclass(frozen=True, slots=True)
class Recorded:
    run: Run
    report: Report


def study(
    recording: Recording,
    spec: Spec,
    line_of: Callable[[int], str],
    *,
    why_no_graph: tuple[str, str] | None = None,
    captured: bool = False,
    growth: Sequence[tuple[int, str]] = (),
    host_speed: float = 1.0,
    kernels: KernelTimes | None = None,
    network: Network | None = None,
    **facts: Any,
) -> Recorded:
    """Return what the recorded program does on a device.

    A step was `captured` into a graph, or not, for a reason and at a line.
    `growth`: the bytes that were allocated at most, and the lines, growing. `facts`
    are fields of the report.
    """
    quiet, usual = recording.quiet()
    simulation = Simulation(quiet, spec, host_speed)
    works = recording.program.works
    times = kernels or KernelTimes(map(Kernel.of_text, spec.kernels))
    told = [_told(work, times) for work in works]
    exact = {i for i, found in enumerate(told) if found and found.exact}
    measured = [found.ns if found else -1.0 for found in told]
    stated = network.ns(works, network.ranks, measured) if network else measured
    run = simulation.run(line_of, stated, exact)
    seen = simulation.step_ns(stated)
    what_if = []
    for what, speeds, gain in (*_CASES, *([_REPLAYED] if captured else [])):
        ns = simulation.step_ns(stated, **speeds)
        what_if.append(WhatIf(what, ns / 1e3, gain * seen / ns if ns else 0.0))
    graph = Graph(what_if[-1].step_us) if captured else None
    if why_no_graph and not captured:
        graph = Graph(None, *why_no_graph)
    beyond = [(size, line) for size, line in growth if size > spec.memory]
    report = analyse(
        run,
        spec.name,
        step_us=seen / 1e3,
        what_if=what_if,
        graph=graph,
        least_us=seen / 1e3,
        most_us=simulation.step_ns(stated, host=1 / usual) / 1e3,
        memory=spec.memory,
        too_much=max(size for size, _ in beyond) - spec.memory if beyond else 0,
        too_much_at=beyond[0][1] if beyond else "",
        **facts,
    )
    if network is not None:
        ranks = _rank_times(quiet, simulation, network, report, measured)
        report = replace(report, ranks=ranks)
    return Recorded(run, report)


def _told(work: Mapping[str, Any], kernels: KernelTimes) -> Told | None:
    """Return the time of a work; None where nothing like it was measured."""
    if work["type"] == "work" and work["kind"] == "kernel":
        for dtype in TYPES.get(work["itemsize"], ()):
            if told := kernels.ns(work["name"], work["shapes"], dtype):
                return told
    return None
