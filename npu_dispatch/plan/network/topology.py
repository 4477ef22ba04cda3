"""Topologies: how ranks are linked inside hosts and across them. This imports no torch.

A topology says what a collective over given ranks would take, as the best of the
algorithms in algorithms.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from npu_dispatch.plan.described import (
    TEXTS,
    Rule,
    SheetError,
    known_keys,
    number,
    parsed,
    section,
    texts,
)
from npu_dispatch.plan.network.algorithms import ALGORITHMS, Group, Link

__all__ = ["Topology", "built_in", "load"]

INSIDE, ACROSS = "inside hosts", "across hosts"

_FOLDER = Path(__file__).parent / "topologies"
_PER_HOST: Rule = (False, True, None)
_LINK: dict[str, Rule] = {
    "alpha_us": (True, False, None),
    "gb_per_s": (False, False, None),
}
_LINK_ACROSS: dict[str, Rule] = {**_LINK, "links": (False, True, None)}


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

        `size` is the bytes of the largest buffer: the output of all_gather, the
        input of reduce_scatter, else the tensor. `sharing` such groups use the
        links of the same hosts at once. "send" has two ranks.
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
        cost = min(ALGORITHMS[kind](group, size), key=lambda cost: cost.seconds())
        return cost.seconds(), ACROSS if cost.across > cost.inside else INSIDE


# The same few groups are asked about for each of their calls.
@lru_cache(maxsize=4096)
def _spread(ranks: tuple[int, ...], per_host: int) -> tuple[int, int, int]:
    """Return how many hosts take part, and with how many ranks at most and least."""
    if not ranks or min(ranks) < 0 or len(set(ranks)) < len(ranks):
        raise ValueError(f"ranks: found {ranks}, expected different ones from 0 on")
    counts = Counter(rank // per_host for rank in ranks).values()
    return len(counts), max(counts), min(counts)


def built_in() -> dict[str, Path]:
    """Return the topologies of this package by name."""
    return {path.stem: path for path in sorted(_FOLDER.glob("*.toml"))}


def load(name: str) -> Topology:
    """Return a topology of this package by its name, or of a file by its path.

    Raises SheetError, which names the key, what was found and what was expected.
    """
    return _read(*parsed(name, built_in(), "topology"))


def _read(path: Path, data: dict[str, Any]) -> Topology:
    known_keys(path, data, (*TEXTS, "per_host", "inside", "across"))
    name = texts(path, data)["name"]
    per_host = number(f"{path}: per_host", data.get("per_host"), _PER_HOST)
    inside = section(path, data, "inside", _LINK)
    across, links = None, 0
    if "across" in data:
        numbers = section(path, data, "across", _LINK_ACROSS)
        across, links = _link(numbers), int(numbers["links"])
    if links > per_host:
        raise SheetError(
            f"{path}: across.links: found {links}, expected at most per_host, "
            f"{per_host}: a rank sends by one link at a time"
        )
    return Topology(
        name,
        per_host=int(per_host),
        inside=_link(inside),
        across=across,
        links_across=links,
    )


def _link(numbers: dict[str, float]) -> Link:
    return Link(numbers["alpha_us"] / 1e6, 1 / (numbers["gb_per_s"] * 1e9))
