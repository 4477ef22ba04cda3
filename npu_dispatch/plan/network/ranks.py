"""What a step would take on more ranks, or fewer, than it was recorded on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npu_dispatch.plan.analysis import RankTime, Report
from npu_dispatch.plan.network.topology import Topology
from npu_dispatch.plan.recording import Act, Recording
from npu_dispatch.plan.sheet import Sheet
from npu_dispatch.plan.simulate import Speeds, step_ns

__all__ = ["Network", "counts", "rank_times", "with_collectives"]

_LEAST_TOLD = 1024


@dataclass(frozen=True, slots=True)
class Network:
    """A topology, and how many ranks of it the program was told that there are."""

    topology: Topology
    ranks: int

    def times(
        self, works: Sequence[dict[str, Any]], meant: int
    ) -> list[tuple[float, str]]:
        """Return the ns of each work and its link; -1 for what is no collective."""
        return [
            self._time(work, meant) if work["type"] == "collective" else (-1.0, "")
            for work in works
        ]

    def ns(self, works: Sequence[dict[str, Any]], meant: int) -> list[float]:
        """Return the ns of each collective among so many ranks; -1 for other work."""
        return [ns for ns, _ in self.times(works, meant)]

    def _time(self, work: dict[str, Any], meant: int) -> tuple[float, str]:
        kind, group = work["kind"], work["ranks"]
        # A message has two ranks, whatever the size of the job.
        if kind != "send":
            group = _grown(group, self.ranks, meant)
        group = [rank for rank in group if rank < meant]
        if len(group) < 2:
            return 0.0, ""
        seconds, link = self.topology.seconds(
            kind, work["bytes"], group, sharing=self._sharing(group, meant)
        )
        return seconds * 1e9, link

    def _sharing(self, group: Sequence[int], meant: int) -> int:
        """Return how many such groups the ranks of the group's first host are in."""
        per_host = self.topology.per_host
        host = group[0] // per_host
        first, end = host * per_host, min((host + 1) * per_host, meant)
        members = sum(first <= rank < end for rank in group)
        return max((end - first) // members, 1)


def _grown(group: Sequence[int], recorded: int, meant: int) -> Sequence[int]:
    """Return the group in a job of another size.

    One that goes in equal strides up to the end of the job goes up to the end of the
    other one, too. That of tensor parallelism, say, stays as it is.
    """
    if recorded == 1:
        return range(meant)
    if len(group) < 2 or list(group) != list(
        range(group[0], recorded, group[1] - group[0] or 1)
    ):
        return group
    return range(group[0], meant, group[1] - group[0])


def with_collectives(
    stated: Sequence[float], collectives: Sequence[float]
) -> list[float]:
    """Return the times of all works: those of collectives, and what is stated."""
    others = stated or [-1.0] * len(collectives)
    return [
        ns if ns >= 0 else other for ns, other in zip(collectives, others, strict=True)
    ]


def counts(topology: Topology, ranks: int) -> list[int]:
    """Return the numbers of ranks to tell of: powers of two, and that of the job."""
    most = max(_LEAST_TOLD, ranks)
    if topology.across is None:
        most = topology.per_host
    powers = {1 << i for i in range(most.bit_length()) if 1 << i <= most}
    return sorted(powers | {ranks})


def rank_times(
    recording: Recording,
    sheet: Sheet,
    network: Network,
    alone: Report,
    speeds: Speeds,
    stated: Sequence[float],
) -> list[RankTime]:
    """Return the times of a step on 1, 2, 4... ranks, and on those of the job.

    `alone` is the report of the run whose collectives take no time. `stated` are
    times of other work, where they are known.
    """
    works = recording.program.works
    calls = _calls(recording, len(works))
    least = step_ns(
        recording, sheet, speeds, with_collectives(stated, network.ns(works, 1))
    )
    parts = {
        "device": alone.device_bound * least,
        "launches": alone.launch_bound * least,
        "syncs": alone.sync_bound * least,
    }
    told = []
    for ranks in counts(network.topology, network.ranks):
        times = network.times(works, ranks)
        whole = with_collectives(stated, [ns for ns, _ in times])
        seen = step_ns(recording, sheet, speeds, whole)
        exposed = max(seen - least, 0.0)
        of_link: dict[str, float] = defaultdict(float)
        for (ns, link), n in zip(times, calls, strict=True):
            if link:
                of_link[link] += ns * n
        link = max(of_link, key=lambda link: of_link[link], default="")
        all_parts = {**parts, link: exposed} if link else parts
        bound = max(all_parts, key=lambda part: all_parts[part])
        told.append(RankTime(ranks, seen / 1e3, exposed / 1e3, bound))
    return told


def _calls(recording: Recording, works: int) -> list[int]:
    entries = recording.entries
    launched = entries["what"][entries["act"] == Act.LAUNCH]
    return [int(n) for n in np.bincount(launched, minlength=works)]
