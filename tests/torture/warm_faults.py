"""Makes each allocation of a program fail that has run before, in one process.

`python -m tests.torture.warm_faults --seconds 60`; prints JSON. faults.py fails
calls of programs that begin cold, one process for each; here a case costs
milliseconds, so that all of them come to their turn: each `operator new` of the
extension, in order from one that is drawn. After each: the right result or a typed
error; then every stream is usable, and now and then the program works.
"""

import argparse
import functools
import random
from collections.abc import Callable, Iterable, Iterator

import torch

from tests.search.children import Died, work_through
from tests.torture import part, program, victims
from tests.torture.faults import Calls, start_again
from tests.torture.part import Told


def outcome(n: int, calls: Calls, wanted: program.State) -> Told:
    """Fail the n-th allocation of a program, 0: none; return what came of it."""

    calls.arm("new", n)
    found = victims.outcome(wanted)
    calls.disarm()
    told: Told = {"failed": calls.failed, "seen": calls.seen, **found}
    if "wrong" in found:
        return {**told, "bad": f"wrong: {found['wrong']}"}
    if "raised" in found and not found["line"]:
        return {**told, "bad": f"raised at no line: {found}"}
    try:
        victims.clear()
        torch.npu.synchronize()
    except Exception as error:
        return {**told, "bad": f"the next wait raised {error!r}, after {found}"}
    if n % 16 == 0:
        again = victims.outcome(wanted)
        if "right" not in again or (again := victims.left_behind()):
            return {**told, "bad": f"the next program: {again}"}
    return told


# Runs of a child before its first case: what it makes once is there then.
_WARM_UP = [0, 0, 0]


@functools.cache
def prepared() -> tuple[Calls, program.State]:

    return Calls(), victims.expected()


def case(n: int, _: Callable[[str], None]) -> Told:
    # From one line: to come from another one would be new, and cost allocations.
    for number in (*_WARM_UP, n):
        told = outcome(number, *prepared())
    _WARM_UP.clear()
    return told


def cases(numbers: Iterable[int], lifetime: int = 1) -> Iterator[tuple[int, Told]]:
    """Yield what came of each; a child that has died is replaced."""

    done = work_through(numbers, case, 1, victims.PATIENCE_S, lifetime)
    for n, found in done:
        died = isinstance(found, Died)
        yield n, {"bad": str(found), "hang": found.hangs} if died else found


def campaign(asked: argparse.Namespace) -> Told:
    """Go through all cases once, from a drawn one on, as far as time allows."""
    total = one("0")["seen"]
    told = {**part.sums(asked.seed), "total": total}
    first = random.Random(asked.seed).randint(1, total)
    order = [*range(first, total + 1), *range(1, first)]
    for n, found in cases(part.in_time(order, asked.seconds, told), total):
        part.add(told, found, "new", n)
    return told


def one(n: str) -> Told:
    [(_, told)] = cases([int(n)])
    return told


if __name__ == "__main__":
    part.main(__doc__, campaign, one=one, asks=("N",), start=start_again)
