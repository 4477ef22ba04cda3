"""One run: selects operators, has workers check them, gathers the results."""

import argparse
import random
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

import npu_dispatch
from npu_dispatch import _C
from tests.conformance.changed import changed, reached, touches
from tests.conformance.check import Run
from tests.conformance.checks import Checker, Options
from tests.search.children import Died, work_through
from tests.search.report import ROOT, new_seed

OPERATORS = {op.full_name: op for op in op_db}
THIRDS = 3
FIXED_SEED = 1  # of a run that is not over all operators


def third(names: Iterable[str], which: int) -> list[str]:
    """Return every third name from `which` on, of the names in order."""
    return sorted(names)[which::THIRDS]


def seed_of(command: argparse.Namespace) -> int:
    """Return the seed of a run's samples: a new one when it is over all operators."""
    if command.seed is not None:
        return command.seed
    return new_seed() if command.all else FIXED_SEED


class Session:
    """A run with the command's options."""

    def __init__(self, command: argparse.Namespace) -> None:
        npu_dispatch.register()
        # Workers share the cores; results do not depend on the number.
        torch.set_num_threads(1)
        self.command = command
        if command.trial_limit is not None:
            _C.set_trial_limit(command.trial_limit)
        self.seed = seed_of(command)
        self._of_one_sample: frozenset[str] = frozenset()
        self.options = Options(
            device=command.device,
            dtypes=tuple(command.dtypes.split(",")),
            backward_dtypes=tuple(command.backward_dtypes.split(",")),
            variants=tuple(command.variants.split(",")),
            samples=command.samples,
            seed=self.seed,
            strict=command.strict,
        )

    def select(self) -> list[str]:
        """Return the names to check, and print how they were chosen."""
        command = self.command
        if command.ops:
            return [name for name in OPERATORS if re.search(command.ops, name)]
        if command.all:
            return list(OPERATORS)
        chosen = third(OPERATORS, 0)
        print(f"a third of the operators: {len(chosen)}", flush=True)
        return chosen + self._changed(set(OPERATORS) - set(chosen))

    def _changed(self, others: Iterable[str]) -> list[str]:
        """Return those whose code changed, as far as their samples come to it."""
        found = changed(ROOT, self.command.base)
        touched = sorted(others) if found.everything else []
        # What all share shows in any sample, as a rule.
        self._of_one_sample = frozenset(touched)
        if found.operators and not found.everything:
            reach = self._touches(found.operators)
            for name, answer in self._work(sorted(others), reach):
                # What crashes is to be checked.
                if answer is True or isinstance(answer, Died):
                    touched.append(name)
        print(f"and whose code changed {found.told}: {len(touched)}", flush=True)
        return touched

    def _touches(self, operators: frozenset[str]) -> Callable[..., bool]:
        def work(name: str, report: Callable[[str], None]) -> bool:
            return touches(reached(OPERATORS[name], self.options.device), operators)

        return work

    def check(self, names: list[str]) -> Run:
        """Check operators, in an order that depends on the seed."""
        print(f"seed {self.seed}: repeat with --seed {self.seed}", flush=True)
        usual = Checker(self.options, _C.cold_launches)
        short = Checker(replace(self.options, samples=1), _C.cold_launches)

        def work(name: str, report: Callable[[str], None]) -> dict[str, Any]:
            checker = short if name in self._of_one_sample else usual
            checker.progress = report
            return checker.operator(OPERATORS[name])

        shuffled = sorted(names)
        random.Random(self.seed).shuffle(shuffled)
        done = []
        for name, answer in self._work(shuffled, work):
            if isinstance(answer, Died):
                answer = {"name": name, "dtypes": {}, "crash": str(answer)}
            done.append(answer)
        return {
            "options": {k: str(v) for k, v in vars(self.command).items()},
            "ops": sorted(done, key=lambda op: str(op["name"])),
        }

    def _work(self, names: list[str], work: Callable[..., Any]) -> Any:
        return work_through(names, work, self.command.jobs, self.command.limit)
