"""Topologies: how ranks are linked, and what collectives take. This imports no torch.

A message of s bytes takes alpha + s * beta: a rank sends one at a time, and may receive
while it sends. Reductions are not counted.

n ranks take part, k on each of m hosts, with s bytes; a and b are alpha and beta of
the link inside hosts, A and B of the one across. Logarithms are rounded up. Where
ranks of a host send across at once, they share its links, which makes B larger.

- ring: (n - 1) * (a + s/n * b), or the same of A and B if that is more, since each
  step waits for the slower link.
- tree: log2 k * (a + s * b) + log2 m * (A + s * B).
- hierarchical: a ring in each host, and across hosts, ranks of equal place double
  what they know in each step, or halve it, which any two of them can do at once:
  (k - 1) * (a + s/k * b) + log2 m * A + (m - 1)/m * s/k * B.
  It needs as many ranks of each host.
- direct, of all_to_all: (k - 1) * (a + s/n * b) + (n - k) * (A + s/n * B).

An all_reduce is twice a pass of these. Where hosts have different numbers of ranks,
k is the most, and n - k is as large as it is for the host with fewest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from npu_dispatch.plan.spec import Rule, SpecError, built_in, read_file

__all__ = ["ALGORITHMS", "FOLDER", "Cost", "Group", "Link", "Topology", "load"]

FOLDER = "topologies"
INSIDE, ACROSS = "inside hosts", "across hosts"
_LINK = {"alpha_us": Rule(zero=True), "gb_per_s": Rule()}
_SCHEMA: dict[str, Rule | Mapping[str, Rule]] = {
    "per_host": Rule(whole=True),
    "inside": _LINK,
    "across": {**_LINK, "links": Rule(whole=True)},
}


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


def _steps(n: int) -> int:
    return (n - 1).bit_length()


class Cost(NamedTuple):
    """Seconds that messages inside hosts take, and those across hosts."""

    inside: float
    across: float

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

    def ring_pass(self, size: float) -> Cost:
        """Once round a ring that enters and leaves each host once."""
        inside = self.inside.ring(self.count, size)
        across = self.alone.ring(self.count, size)
        if self.hosts == 1 or (self.most > 1 and inside >= across):
            return Cost(inside, 0)
        return Cost(0, across)

    def tree_pass(self, size: float) -> Cost:
        """Up a tree of each host and one of the hosts, or down."""
        return Cost(
            self.inside.tree(self.most, size), self.alone.tree(self.hosts, size)
        )

    def hierarchy(self, size: float) -> Cost:
        """A reduce-scatter or an all-gather: rings in hosts, halves of parts across."""
        moved = size / self.most * (self.hosts - 1) / self.hosts
        across = _steps(self.hosts) * self.together.alpha + moved * self.together.beta
        return Cost(self.inside.ring(self.most, size), across)

    def direct(self, size: float) -> Cost:
        """Each rank sends a part to each other one."""
        part, away = size / self.count, self.count - self.least
        return Cost(
            (self.most - 1) * self.inside.time(part), away * self.together.time(part)
        )


_ALL = (Group.ring_pass, Group.tree_pass, Group.hierarchy)
_KINDS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
ALGORITHMS: Mapping[str, Sequence[Callable[[Group, float], Cost]]] = {
    **dict.fromkeys((*_KINDS, "scatter", "gather", "barrier"), _ALL),
    "all_to_all": (Group.direct,),
    "send": (Group.tree_pass,),  # of two ranks: one message
}
_TWO_PASSES = ("all_reduce", "barrier")


@dataclass(frozen=True, slots=True)
class Topology:
    """Hosts of `per_host` ranks each; rank r is on host r // per_host.

    A host has `links_across` links to others, which its ranks share. One host
    that has none is a topology, too: `across` is then None.
    """

    name: str
    per_host: int
    inside: Link
    across: Link | None
    links_across: int

    def seconds(
        self, kind: str, size: float, ranks: Sequence[int], *, sharing: int = 1
    ) -> tuple[float, str]:
        """Return what a collective takes, and which links take more of that.

        It takes the least of its algorithms. `size` is the bytes of the largest
        buffer: the output of all_gather, the input of reduce_scatter, else the tensor.
        `sharing` such groups use the links of the same hosts at once. "send" has two
        ranks.
        """
        if kind not in ALGORITHMS:
            raise ValueError(
                f"kind: found {kind!r}, expected one of {', '.join(ALGORITHMS)}"
            )
        if size < 0 or sharing < 1:
            raise ValueError(
                f"found size {size} and sharing {sharing}, expected at least 0 and 1"
            )
        hosts, most, least = _spread(tuple(ranks), self.per_host)
        if self.across is None and max(ranks) >= self.per_host:
            raise ValueError(
                f"{self.name} is one host of {self.per_host} ranks: found rank "
                f"{max(ranks)}"
            )
        across = self.across or self.inside  # which nothing uses on one host
        links = max(self.links_across, 1)
        group = Group(
            hosts,
            most,
            least,
            len(ranks),
            self.inside,
            alone=across.shared(sharing / links),
            together=across.shared(most * sharing / links),
        )
        size = 0 if kind == "barrier" else size
        costs = [
            algorithm(group, size)
            for algorithm in ALGORITHMS[kind]
            if most == least or algorithm is not Group.hierarchy
        ]
        cost = min(costs, key=lambda cost: cost.seconds())
        passes = 2 if kind in _TWO_PASSES else 1
        bound_by = ACROSS if cost.across > cost.inside else INSIDE
        return passes * cost.seconds(), bound_by


# The same few groups are asked about for each of their calls.
@lru_cache(maxsize=4096)
def _spread(ranks: tuple[int, ...], per_host: int) -> tuple[int, int, int]:
    """Return how many hosts take part, and with how many ranks at most and least."""
    if not ranks or min(ranks) < 0 or len(set(ranks)) < len(ranks):
        raise ValueError(f"ranks: found {ranks}, expected different ones from 0 on")
    counts = Counter(rank // per_host for rank in ranks).values()
    return len(counts), max(counts), min(counts)


def load(name: str) -> Topology:
    """Return a topology of this package by its name, or of a file by its path.

    Raises SpecError, which names the key, what was found and what was expected.
    """
    files = built_in(FOLDER)
    path, said = read_file(name, files, "topology", _SCHEMA, optional=["across"])
    per_host, across = int(said["per_host"]), said.get("across")
    links = int(across["links"]) if across else 0
    if links > per_host:
        raise SpecError(
            f"{path}: across.links: found {links}, expected at most per_host, "
            f"{per_host}: a rank sends by one link at a time"
        )
    return Topology(
        said["name"],
        per_host,
        _link(said["inside"]),
        _link(across) if across else None,
        links,
    )


def _link(numbers: Mapping[str, float]) -> Link:
    return Link(numbers["alpha_us"] / 1e6, 1 / (numbers["gb_per_s"] * 1e9))
