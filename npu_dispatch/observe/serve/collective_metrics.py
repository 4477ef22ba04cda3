"""The metrics of collectives, by group of ranks and by collective."""

from __future__ import annotations

from collections.abc import Sequence

from npu_dispatch.observe.segment.collectives import CollectiveTotal
from npu_dispatch.observe.serve.families import Families, Labels

__all__ = ["add_collectives"]

_S = 1e9
_TOKEN = 8  # letters of it, which are enough to tell groups apart


def add_collectives(
    out: Families, base: Labels, totals: Sequence[CollectiveTotal]
) -> None:
    """Add what the collective calls of a process have cost.

    The label `rank` is the rank of the world, also in a group of some of its ranks
    and where the process has no RANK in its environment.
    """
    for total in totals:
        group = total.group
        labels = Labels(
            base,
            rank=str(group.global_rank),
            group=group.title,
            collective=total.name,
        )
        if group.token:
            labels["group_token"] = group.token[:_TOKEN]
        text = "Time of collective calls from start to end, by calls that are done."
        out.histogram("collective_seconds", text, labels, total.run)
        text = "Bytes that this rank gave to collective calls, or else received."
        out.counter("collective_bytes", text, labels, total.bytes, zero=True)
        times = {
            "queued": (total.queued_ns, "Time of calls before their start."),
            "wait": (
                total.waited_ns,
                "Part of collective_seconds in which not all ranks had called.",
            ),
            "exposed": (
                total.exposed_ns,
                "Part of collective_seconds in which nothing else ran on the device.",
            ),
            "host_wait": (
                total.host_wait_ns,
                "Part of the exposed time in which the host waited for the device.",
            ),
        }
        for name, (ns, text) in times.items():
            name = f"collective_{name}_seconds"
            out.counter(name, text, labels, ns / _S, zero=True)
        text = "Collective calls that failed."
        out.counter("collectives_failed", text, labels, total.failed)
