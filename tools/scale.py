"""What an all-reduce would take on more ranks than this machine has.

A message of n bytes is taken to cost alpha + n * beta at its sender, and to be
with its receiver when it has left: a rank sends one message at a time, and may
receive while it sends. A rank sends to those of its host by one such link and to
others by another, whose bytes leave a host one message after the other: its
ranks share that link. Reductions are not counted. The ranks are
simulated message by message; the closed formulas of the algorithms are here too,
and tests/unit/test_scale.py holds one against the other.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

SIZES = {4: "4 B", 1 << 20: "1 MB", 1 << 26: "64 MB"}
PER_HOST = 8
GIGABIT = 8e-9  # seconds for each byte


@dataclass(frozen=True)
class Link:
    """alpha: seconds for each message. beta: seconds for each byte."""

    alpha: float
    beta: float

    def time(self, size: float) -> float:
        """Return the seconds that a message of so many bytes takes."""
        return self.alpha + size * self.beta


class Ranks:
    """Clocks of simulated ranks, `per_host` of them joined by `inside`."""

    def __init__(self, count: int, across: Link, inside: Link, per_host: int) -> None:
        if count < 1 or per_host < 1:
            raise ValueError(f"{count} ranks, {per_host} of them on each host")
        self.ready = [0.0] * count
        self._across, self._inside, self._per_host = across, inside, per_host
        self._sent = [0.0] * -(-count // per_host)  # by the host's link across

    def round(self, messages: Iterable[tuple[int, int, float]]) -> None:
        """Send what has been asked for: (from, to, bytes), in this order.

        All begin with what their senders had before. A sender is busy till its
        message has left; a receiver goes on when it has all of this round.
        """
        busy: dict[int, float] = {}
        came: dict[int, float] = {}
        for sender, to, size in messages:
            begin = busy.get(sender, self.ready[sender])
            host = sender // self._per_host
            if host == to // self._per_host:
                left = begin + self._inside.time(size)
            else:
                begin = max(begin + self._across.alpha, self._sent[host])
                left = self._sent[host] = begin + size * self._across.beta
            busy[sender] = left
            came[to] = max(came.get(to, 0.0), left)
        for times in (busy, came):
            for rank, time in times.items():
                self.ready[rank] = max(self.ready[rank], time)

    def time(self) -> float:
        """Return when the last rank was done, in seconds."""
        return max(self.ready)


def mesh(ranks: Ranks, group: Sequence[int], size: float) -> None:
    """Each rank reduces a chunk: to each other, and back. What hccl does."""
    _each_to_each(ranks, group, size)
    _each_to_each(ranks, group, size)


def _each_to_each(ranks: Ranks, group: Sequence[int], size: float) -> None:
    n = len(group)
    ranks.round(
        (group[i], group[(i + step) % n], size / n)
        for step in range(1, n)
        for i in range(n)
    )


def ring(ranks: Ranks, group: Sequence[int], size: float) -> None:
    """Chunks go round once to be added, and once more to be known."""
    for _ in range(2):
        _round_the_rings(ranks, [group], size)


def _round_the_rings(
    ranks: Ranks, groups: Sequence[Sequence[int]], size: float
) -> None:
    n = len(groups[0])
    for _ in range(n - 1):
        ranks.round(
            (group[i], group[(i + 1) % n], size / n)
            for group in groups
            for i in range(n)
        )


def tree(ranks: Ranks, group: Sequence[int], size: float) -> None:
    """All of it to rank 0, by halves of the ranks, and back the same way."""
    n = len(group)
    steps = [1 << i for i in range((n - 1).bit_length())]
    for step in steps:
        ranks.round(
            (group[i + step], group[i], size) for i in range(0, n - step, 2 * step)
        )
    for step in reversed(steps):
        ranks.round(
            (group[i], group[i + step], size) for i in range(0, n - step, 2 * step)
        )


def hierarchical(
    ranks: Ranks, group: Sequence[int], size: float, per_host: int
) -> None:
    """Reduce-scatter in each host, rings across of equal ranks, all-gather."""
    if len(group) % per_host:
        raise ValueError(f"{len(group)} ranks do not fill hosts of {per_host}")
    hosts = [group[i : i + per_host] for i in range(0, len(group), per_host)]
    across = [[host[index] for host in hosts] for index in range(per_host)]
    _round_the_rings(ranks, hosts, size)
    for _ in range(2):
        _round_the_rings(ranks, across, size / per_host)
    _round_the_rings(ranks, hosts, size)


def mesh_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of mesh() over links that are all the same."""
    return 2 * (n - 1) * link.time(size / n)


def ring_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of ring() over links that are all the same."""
    return 2 * (n - 1) * link.time(size / n)


def tree_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of tree() over links that are all the same.

    Of a power of two; a tree that is not full takes no longer than the next.
    """
    return 2 * math.ceil(math.log2(n)) * link.time(size)


def hierarchical_formula(
    n: int, size: float, across: Link, inside: Link, per_host: int
) -> float:
    """Return the seconds of hierarchical(); per_host rings share a host's link."""
    return ring_formula(per_host, size, inside) + ring_formula(
        n // per_host, size, across
    )


def table(across: Link, inside: Link, per_host: int) -> list[dict[str, float]]:
    """Return milliseconds of each algorithm, by ranks and bytes."""
    rows = []
    for n in (2, 8, 64, 512, 4096):
        for size in SIZES:
            row: dict[str, float] = {"ranks": n, "bytes": size}
            runs = {
                "mesh_ms": mesh if n <= 512 else None,  # n squared messages
                "ring_ms": ring if n <= 512 else None,  # and so has it
                "tree_ms": tree,
                "hierarchical_ms": partial(hierarchical, per_host=min(per_host, n)),
            }
            for name, run in runs.items():
                if run is None:
                    continue
                ranks = Ranks(n, across, inside, per_host)
                run(ranks, range(n), size)
                row[name] = round(ranks.time() * 1e3, 3)
            rows.append(row)
    return rows


def shown(ms: float) -> str:
    """Three digits that matter, and no exponent."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def markdown(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the table of docs/scale.md: what tells more than two ranks apart."""
    text = "| ranks | bytes | all to all, ms | ring | tree | hierarchical |\n"
    text += "|---|---|---|---|---|---|\n"
    for row in rows:
        if row["ranks"] < 8:
            continue
        names = ("mesh_ms", "ring_ms", "tree_ms", "hierarchical_ms")
        cells = [shown(row[name]) if name in row else "" for name in names]
        size = SIZES[int(row["bytes"])]
        text += f"| {row['ranks']} | {size} | {' | '.join(cells)} |\n"
    return text


def main() -> None:
    """Print a JSON line for each number of ranks and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("across", "inside"):
        parser.add_argument(f"--{name}-alpha", type=float, required=True, help="s")
        parser.add_argument(f"--{name}-beta", type=float, required=True, help="s/byte")
    parser.add_argument(
        "--per-host", type=int, default=PER_HOST, help="ranks of a host"
    )
    args = parser.parse_args()
    across = Link(args.across_alpha, args.across_beta)
    inside = Link(args.inside_alpha, args.inside_beta)
    for row in table(across, inside, args.per_host):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
