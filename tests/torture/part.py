"""What every part of the campaign has: its options, its time, the sums of its cases."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.search.report import new_seed

Told = dict[str, Any]


def main(
    doc: str | None,
    campaign: Callable[[argparse.Namespace], Told],
    *,
    one: Callable[..., Told] | None = None,
    asks: Sequence[str] = (),
    seconds: float = 60,
    options: Callable[[argparse.ArgumentParser], None] = lambda _: None,
    start: Callable[[], None] = lambda: None,
) -> None:
    """Run the campaign for some seconds, or one of its cases; print its JSON.

    `one` gets what follows `--one`, which `asks` names. `start` is called first.
    """
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("--seconds", type=float, default=seconds)
    parser.add_argument("--seed", type=int, help="without, what is drawn is new")
    options(parser)
    if one:
        parser.add_argument("--one", nargs=len(asks), metavar=asks)
    asked = parser.parse_args()
    if asked.seed is None:
        asked.seed = new_seed()
    start()
    if one and asked.one:
        print(json.dumps(one(*asked.one), indent=1))
    else:
        print(json.dumps(campaign(asked)))


def sums(seed: int) -> Told:
    """Return the sums of no cases yet."""
    counts = dict.fromkeys(("cases", "injected", "raised", "right", "hangs"), 0)
    return {"seed": seed, **counts, "by_kind": {}, "bad": [], "complete": False}


def in_time(cases: Iterable[Any], seconds: float, told: Told) -> Iterator[Any]:
    """Yield cases until the time is over; note in the sums whether all have come."""
    end = time.monotonic() + seconds
    for case in cases:
        if time.monotonic() > end:
            return
        yield case
    told["complete"] = True


def add(told: Told, found: Told, kind: str, *where: object) -> None:
    """Add a case to the sums: a fault is one where a call is known to have failed.

    Calls of several threads come in another order each time, and the n-th may not
    come at all. A child that hung or died has not said whether it did.
    """
    told["cases"] += 1
    told["by_kind"][kind] = told["by_kind"].get(kind, 0) + 1
    told["hangs"] += bool(found.get("hang"))
    if found.get("bad"):
        case = " ".join(map(str, (kind, *where)))
        again = f"python -m tests.torture.{Path(sys.argv[0]).stem} --one {case}"
        told["bad"].append({"what": case, "text": found["bad"], "again": again})
        print(case, found["bad"], file=sys.stderr, flush=True)
    if found.get("failed"):
        told["injected"] += 1
        if not found.get("bad"):
            told["raised" if "raised" in found else "right"] += 1
