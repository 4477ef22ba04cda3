"""What collectives take over hosts, as closed formulas. This imports no torch.

A message of s bytes takes alpha + s * beta: a rank sends one at a time, and may receive
while it sends. Reductions are not counted.

n ranks take part, k on each of m hosts, with s bytes; a and b are alpha and beta of
the link inside hosts, A and B of the one across. Logarithms are rounded up. Where
ranks of a host send across at once, they share its links, which makes B larger.

- ring: (n - 1) * (a + s/n * b), or the same of A and B if that is more, since each
  step waits for the slower link. What goes from one rank to all, or back, goes from
  rank to rank by pieces: (sqrt((n - 2) * a) + sqrt(s * b)) ** 2 with the best number.
- tree: log2 k * (a + s * b) + log2 m * (A + s * B). To scatter or gather, each step
  has half of the bytes of the one before:
  log2 k * a + (k - 1)/n * s * b + log2 m * A + (n - k)/n * s * B.
- hierarchical: a ring in each host, and across hosts, ranks of equal place double
  what they know in each step, or halve it, which any two of them can do at once:
  (k - 1) * (a + s/k * b) + log2 m * A + (m - 1)/m * s/k * B.
  It needs as many ranks of each host.
- direct, of all_to_all: (k - 1) * (a + s/n * b) + (n - k) * (A + s/n * B). By hosts,
  ranks of a host first exchange what others of equal place are to have:
  (k - 1) * (a + s/k * b) + (m - 1) * (A + s/m * B).

An all_reduce is twice a pass of these. Where hosts have different numbers of ranks,
k is the most, and n - k is as large as it is for the host with fewest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["ALGORITHMS", "Cost", "Group", "Link"]


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

    def ring(self, n: int, size: float) -> float:
        """Return the seconds of n - 1 messages of 1/n: once round a ring."""
        return (n - 1) * self.time(size / n)

    def tree(self, n: int, size: float) -> float:
        """Return the seconds of log2 n messages of all: up a tree, or down."""
        return _steps(n) * self.time(size)

    def halves(self, n: int, moved: float) -> float:
        """Return the seconds of log2 n messages that are `moved` bytes together.

        A tree scatters or gathers so, as each message is half of the one before, and
        so do the ranks that double what they know in each step, or halve it.
        """
        return _steps(n) * self.alpha + moved * self.beta

    def chain(self, n: int, size: float) -> float:
        """Return the seconds of handing all of it from rank to rank, by pieces.

        c pieces take (n - 2 + c) * (alpha + size / c * beta); this is the least of
        that for any c of at least 1, whole or not.
        """
        hops, moved = max(n - 2, 0) * self.alpha, size * self.beta
        if n < 2 or max(n - 2, 0) * moved < self.alpha:  # one piece is best
            return (n - 1) * self.time(size)
        return hops + moved + 2 * math.sqrt(hops * moved)


def _steps(n: int) -> int:
    return (n - 1).bit_length()


class Cost(NamedTuple):
    """Seconds that messages inside hosts take, and those across hosts."""

    inside: float
    across: float

    def then(self, other: Cost) -> Cost:
        """Return what both take, one after the other."""
        return Cost(self.inside + other.inside, self.across + other.across)

    def seconds(self) -> float:
        """Return the sum of both."""
        return self.inside + self.across


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a collective, and the links that each of them has.

    `alone` is the link across where one rank of each host sends, `together` that
    of each rank where all of its host send.
    """

    hosts: int
    most: int  # ranks on the host that has most
    least: int
    count: int
    inside: Link
    alone: Link
    together: Link

    @property
    def is_even(self) -> bool:
        """Whether each host has as many ranks."""
        return self.most == self.least

    def ring_pass(self, size: float) -> Cost:
        """Once round a ring that enters and leaves each host once."""
        inside = self.inside.ring(self.count, size)
        across = self.alone.ring(self.count, size)
        if self.hosts == 1 or (self.most > 1 and inside >= across):
            return Cost(inside, 0)
        return Cost(0, across)

    def chain(self, size: float) -> Cost:
        """From rank to rank by pieces, each hop as slow as the slower link."""
        if self.hosts == 1:
            return Cost(self.inside.chain(self.count, size), 0)
        if self.most == 1:
            return Cost(0, self.alone.chain(self.count, size))
        inside, alone = self.inside, self.alone
        slow = Link(max(inside.alpha, alone.alpha), max(inside.beta, alone.beta))
        taken = slow.chain(self.count, size)
        is_inside = inside.time(size) >= alone.time(size)
        return Cost(taken, 0) if is_inside else Cost(0, taken)

    def tree_pass(self, size: float) -> Cost:
        """Up a tree of each host and one of the hosts, or down."""
        return Cost(
            self.inside.tree(self.most, size), self.alone.tree(self.hosts, size)
        )

    def tree_parts(self, size: float) -> Cost:
        """A scatter or a gather; the root may be on the host with fewest ranks."""
        part = size / self.count
        return Cost(
            self.inside.halves(self.most, (self.most - 1) * part),
            self.alone.halves(self.hosts, (self.count - self.least) * part),
        )

    def hierarchy(self, size: float) -> Cost:
        """A reduce-scatter or an all-gather: rings in hosts, halves of parts across."""
        moved = size / self.most * (self.hosts - 1) / self.hosts
        return Cost(
            self.inside.ring(self.most, size), self.together.halves(self.hosts, moved)
        )

    def chains_across(self, size: float) -> Cost:
        """The root's host scatters, a chain of each part follows, hosts gather."""
        scatter = self.inside.halves(self.most, size * (1 - 1 / self.most))
        across = self.together.chain(self.hosts, size / self.most)
        return Cost(scatter + self.inside.ring(self.most, size), across)

    def direct(self, size: float) -> Cost:
        """Each rank sends a part to each other one."""
        part, away = size / self.count, self.count - self.least
        return Cost(
            (self.most - 1) * self.inside.time(part), away * self.together.time(part)
        )

    def direct_by_hosts(self, size: float) -> Cost:
        """Ranks of a host exchange what is for equal places, then those do."""
        return Cost(
            self.inside.ring(self.most, size), self.together.ring(self.hosts, size)
        )


def _twice(cost: Cost) -> Cost:
    return cost.then(cost)


def _all_reduce(group: Group, size: float) -> list[Cost]:
    costs = [_twice(group.ring_pass(size)), _twice(group.tree_pass(size))]
    return [*costs, _twice(group.hierarchy(size))] if group.is_even else costs


def _scattered_or_gathered(group: Group, size: float) -> list[Cost]:
    # A tree reduces and then scatters, or gathers and then broadcasts.
    tree = group.tree_pass(size).then(group.tree_parts(size))
    costs = [group.ring_pass(size), tree]
    return [*costs, group.hierarchy(size)] if group.is_even else costs


def _one_and_all(group: Group, size: float) -> list[Cost]:
    costs = [group.chain(size), group.tree_pass(size)]
    return [*costs, group.chains_across(size)] if group.is_even else costs


def _parts(group: Group, size: float) -> list[Cost]:
    return [group.tree_parts(size)]


def _all_to_all(group: Group, size: float) -> list[Cost]:
    costs = [group.direct(size)]
    return [*costs, group.direct_by_hosts(size)] if group.is_even else costs


def _barrier(group: Group, size: float) -> list[Cost]:
    return _all_reduce(group, 0)  # whatever the size: nothing is sent


def _send(group: Group, size: float) -> list[Cost]:
    return [group.tree_pass(size)]  # of two ranks: one message


ALGORITHMS: Mapping[str, Callable[[Group, float], list[Cost]]] = {
    "all_reduce": _all_reduce,
    "all_gather": _scattered_or_gathered,
    "reduce_scatter": _scattered_or_gathered,
    "broadcast": _one_and_all,
    "reduce": _one_and_all,
    "scatter": _parts,
    "gather": _parts,
    "all_to_all": _all_to_all,
    "barrier": _barrier,
    "send": _send,
}
