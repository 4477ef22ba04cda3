"""Run a program under many interleavings of its streams, each chosen by a seed.

A correctly ordered program gives the same results under all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.utils import _pytree as pytree

from npu_dispatch import _C, npu

__all__ = ["Run", "ScheduleError", "explore", "schedule"]

LENGTH = 64  # how many tasks are assumed before they have been counted
_CHANGES = 3  # steps at which a priority drops; bugs of that depth are found


@dataclass(slots=True)
class Run:
    """What one schedule did. `trace` differs when the interleaving does."""

    seed: int
    steps: int = 0
    trace: int = 0


class ScheduleError(AssertionError):
    """Two schedules of one program gave different results, or one failed.

    `seed` replays it: explore(fn, schedules=1, seed=error.seed). schedule() and
    pytest have to be told `length` as well.
    """

    def __init__(self, seed: int, what: str, length: int, poison: bool = True) -> None:
        if poison:
            again = (
                f"explore(fn, schedules=1, seed={seed}), or, where a test does "
                "only what fn does, "
                f"pytest --npu-schedules=1 --npu-seed={seed} --npu-length={length}"
            )
        else:
            again = f"explore(fn, schedules=1, seed={seed}, poison=False)"
        super().__init__(
            f"the result depends on how streams interleave: {what}.\n"
            f"Replay it with {again}"
        )
        self.seed = seed
        self.length = length


@contextmanager
def schedule(
    seed: int, *, length: int = LENGTH, changes: int = _CHANGES, poison: bool = True
) -> Iterator[Run]:
    """Run the tasks of this block one at a time, in the order of `seed`.

    With seed 0 every task runs at once, in program order. `length`: about how many
    tasks the block launches. `poison`: overwrite device memory when it is freed.
    The program must use the device from one thread only.
    """
    if seed < 0:
        raise ValueError(f"a seed is not negative: {seed}")
    run = Run(seed)
    _C.schedule_start(seed, changes, length, poison)
    try:
        yield run
        for index in range(npu.device_count()):
            npu.synchronize(index)
    finally:
        run.steps, run.trace = _C.schedule_stop()


def explore(
    fn: Callable[[], Any],
    schedules: int = 100,
    seed: int = 1,
    *,
    poison: bool = True,
) -> list[Run]:
    """Run `fn` in program order, then under `schedules` others, and compare.

    `fn` starts from the same state every time and returns tensors, or anything
    made of them, on any device; they are compared bit for bit. Schedule number
    i has the seed `seed` + i. Returns what ran. Raises ScheduleError at the
    first difference, and at the first exception that program order did not
    raise, naming the seed that replays it.

    In a process group all ranks call it; each of them raises where one has found a
    difference.
    """
    if seed < 1:
        raise ValueError(f"seeds start at 1 (0 is program order), not {seed}")
    with schedule(0, poison=False) as first:
        expected = _results(fn())
    runs = [first]
    for number in range(seed, seed + schedules):
        try:
            with schedule(number, length=first.steps, poison=poison) as run:
                found = _results(fn())
        except Exception as error:
            raise ScheduleError(
                number,
                f"{type(error).__name__} under seed {number}: {error}",
                first.steps,
                poison,
            ) from error
        runs.append(run)
        if (what := _of_any_rank(_difference(expected, found))) is not None:
            raise ScheduleError(number, what, first.steps, poison)
    return runs


def _of_any_rank(what: str | None) -> str | None:
    """Return what this rank has found, or another one: they go on together."""
    if not dist.is_available() or not dist.is_initialized():
        return what
    told: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(told, what)
    others = (f"on rank {rank}: {text}" for rank, text in enumerate(told) if text)
    return what or next(others, None)


def _results(value: Any) -> Any:
    """Bring the tensors of a result to the host."""
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().cpu().clone(), value)


def _difference(expected: Any, found: Any) -> str | None:
    one, shape_one = pytree.tree_flatten(expected)
    two, shape_two = pytree.tree_flatten(found)
    if shape_one != shape_two:
        return f"the result is {shape_two}, in program order it is {shape_one}"
    for number, (a, b) in enumerate(zip(one, two, strict=True)):
        if isinstance(a, torch.Tensor):
            same = (
                isinstance(b, torch.Tensor)
                and a.dtype == b.dtype
                and a.shape == b.shape
                and torch.equal(_bits(a), _bits(b))
            )
        else:
            same = _are_equal(a, b)
        if not same:
            return f"value {number} of the result is {b}, in program order it is {a}"
    return None


def _are_equal(a: Any, b: Any) -> bool:
    """Compare two values that are no tensors; NaN equals itself."""
    # Its own class's, or that of one of its bases.
    has_equality = any("__eq__" in vars(c) for c in type(a).__mro__ if c is not object)
    if not has_equality and a is not b:
        raise TypeError(
            f"the program returned a {type(a).__name__}, which defines no ==, so two "
            "runs cannot be compared; return tensors, numbers or containers of these"
        )
    return bool(a == b or (a != a and b != b))


def _bits(t: torch.Tensor) -> torch.Tensor:
    """Return the tensor's bytes, so that NaN equals itself."""
    return t.contiguous().reshape(-1).view(torch.uint8)
