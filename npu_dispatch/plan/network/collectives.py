"""What collectives take: ranks simulated message by message, and closed formulas.

A message of n bytes is taken to cost alpha + n * beta at its sender, and to be
with its receiver when it has left: a rank sends one message at a time, and may
receive while it sends. A rank sends to those of its host by one such link and to
others by another, whose bytes leave a host one message after the other: its
ranks share the links that it has across. Reductions are not counted.
tests/plan/ holds the simulation against the formulas. This imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

__all__ = [
    "Link",
    "Ranks",
    "chain_formula",
    "halving_formula",
    "hierarchical",
    "hierarchical_formula",
    "mesh",
    "mesh_formula",
    "ring",
    "ring_formula",
    "ring_pass_formula",
    "tree",
    "tree_formula",
    "tree_pass_formula",
]


@dataclass(frozen=True, slots=True)
class Link:
    """alpha: seconds for each message. beta: seconds for each byte."""

    alpha: float
    beta: float

    def time(self, size: float) -> float:
        """Return the seconds that a message of so many bytes takes."""
        return self.alpha + size * self.beta

    def shared(self, senders: float) -> Link:
        """Return the link as each has it of so many that send at once."""
        return Link(self.alpha, self.beta * max(1.0, senders))


class Ranks:
    """Clocks of simulated ranks, `per_host` of them joined by `inside`.

    A host has `links` of those across, dealt to its ranks in turn.
    """

    def __init__(
        self, count: int, across: Link, inside: Link, per_host: int, links: int = 1
    ) -> None:
        if count < 1 or per_host < 1 or links < 1:
            raise ValueError(
                f"{count} ranks, {per_host} of them on each host with {links} links"
            )
        self.ready = [0.0] * count
        self._across, self._inside = across, inside
        self._per_host, self._links = per_host, links
        self._sent: dict[tuple[int, int], float] = {}  # by host and link across

    def round(self, messages: Iterable[tuple[int, int, float]]) -> None:
        """Send what has been asked for: (from, to, bytes), in this order.

        All begin with what their senders had before. A sender is busy till its
        message has left; a receiver goes on when it has all of this round.
        """
        busy: dict[int, float] = {}
        came: dict[int, float] = {}
        for sender, to, size in messages:
            begin = busy.get(sender, self.ready[sender])
            host, place = divmod(sender, self._per_host)
            if host == to // self._per_host:
                left = begin + self._inside.time(size)
            else:
                link = host, place % self._links
                begin = max(begin + self._across.alpha, self._sent.get(link, 0.0))
                left = self._sent[link] = begin + size * self._across.beta
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
    steps = [1 << i for i in range(_steps(n))]
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
    return 2 * ring_pass_formula(n, size, link)


def ring_pass_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of n - 1 messages of 1/n: once round a ring."""
    return (n - 1) * link.time(size / n)


def tree_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of tree() over links that are all the same.

    Of a power of two; a tree that is not full takes no longer than the next.
    """
    return 2 * tree_pass_formula(n, size, link)


def tree_pass_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of log2 n messages of all: up a tree, or down."""
    return _steps(n) * link.time(size)


def halving_formula(n: int, moved: float, link: Link) -> float:
    """Return the seconds of log2 n messages that are `moved` bytes together.

    A tree scatters or gathers so, as each message is half of the one before, and
    so do the ranks that double what they know in each step, or halve it.
    """
    return _steps(n) * link.alpha + moved * link.beta


def chain_formula(n: int, size: float, link: Link) -> float:
    """Return the seconds of handing all of it from rank to rank, by pieces.

    c pieces take (n - 2 + c) * (alpha + size / c * beta); this is the least of
    that for any c of at least 1, whole or not.
    """
    hops, moved = max(n - 2, 0) * link.alpha, size * link.beta
    if n < 2 or max(n - 2, 0) * moved < link.alpha:  # one piece is best
        return (n - 1) * link.time(size)
    return hops + moved + 2 * math.sqrt(hops * moved)


def _steps(n: int) -> int:
    return (n - 1).bit_length()


def hierarchical_formula(
    n: int, size: float, across: Link, inside: Link, per_host: int
) -> float:
    """Return the seconds of hierarchical(); per_host rings share a host's link."""
    return ring_formula(per_host, size, inside) + ring_formula(
        n // per_host, size, across
    )
