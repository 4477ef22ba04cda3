"""Programs, written while they run on cpu: each step sees what the last ones made."""

import warnings
from collections.abc import Callable

from tests.differential import authors as a, authors_numbers as n, authors_states as s
from tests.differential.context import Choices, Context, steps
from tests.differential.machine import Machine, Trace

SHORTEST, LONGEST = 3, 15
THEME = 6
# How often each is asked, of the sum.
AUTHORS: list[a.Author] = [
    author
    for author, weight in {
        a.make: 3,
        a.make_leaf: 3,
        a.make_host: 1,
        a.factory: 3,
        a.factory_like: 2,
        a.view: 8,
        a.parts: 1,
        a.unary: 4,
        a.binary: 5,
        a.sugar: 4,
        a.ternary: 2,
        a.copy: 4,
        a.overwrite: 4,
        a.storage: 2,
        a.read: 2,
        a.written_out: 3,
        a.reduce: 4,
        a.multiply: 3,
        a.index: 4,
        a.join: 3,
        a.layer: 4,
        a.foreach: 3,
        a.differentiate: 8,
        a.switch: 2,
        a.nest: 1,
        n.large: 2,
        n.wrong_size: 3,
        n.ends: 2,
        n.draw: 1,
        n.decompose: 1,
        s.autocast: 2,
        s.deterministic: 1,
        s.few_plans: 1,
        s.many_calls: 1,
        s.second_device: 2,
        s.pinned: 1,
        s.graph: 3,
        s.compiled: 1,
        s.transform: 2,
        s.function: 1,
        s.recur: 1,
        s.operator: 2,
    }.items()
    for _ in range(weight)
]


def write_step(choices: Choices, machine: Machine, theme: list[a.Author]) -> str:
    context = Context(choices, machine.names)
    author = choices.pick(AUTHORS if choices.chance(4) else theme)
    far = choices.chance(9)
    step = author(context) or a.make(context) or ""
    return a.elsewhere(context, step) if far else step


def write(
    seed: int, number: int, note: Callable[[str], None]
) -> tuple[list[str], Trace]:
    """Return a round's program of that number, and its run on cpu.

    note() hears each step before it runs.
    """
    machine = Machine("cpu")
    program: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            first, *others = steps(seed, number, SHORTEST, LONGEST)
            # Few kinds of steps in each program: what they do to one another is
            # rarer the more kinds there are.
            theme = [a.make, *(first.pick(AUTHORS) for _ in range(THEME))]
            for choices in others:
                step = write_step(choices, machine, theme)
                note(step)
                program.append(step)
                machine.run(step)
            return program, machine.finish()
        finally:
            machine.close()
