"""Which operators of a process have series of their own."""

from __future__ import annotations

from collections.abc import Sequence

from npu_dispatch.observe.segment import OpCost

__all__ = ["OTHER", "TopOps"]

OTHER = "other"
# Operators that are among the costliest only later get series too, up to so many
# times the number that was asked for.
_ROOM = 2


class TopOps:
    """The series of one process: its costliest `most` operators, and all others.

    No counter ever falls. An operator that was once among the costliest keeps its
    series. If others were shown before, its series begins at zero, and what it had
    cost by then stays in the sum of the others.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._before: dict[str, tuple[int, int]] = {}  # by operator: tasks, ns

    def rows(self, costs: Sequence[OpCost]) -> list[OpCost]:
        """Return the series, the others' last. `costs` has the costliest first."""
        first = not self._before
        for cost in costs[: self._most]:
            if len(self._before) < _ROOM * self._most:
                entry = (0, 0) if first else (cost.tasks, cost.ns)
                self._before.setdefault(cost.op, entry)
        rows = []
        for cost in costs:
            if (past := self._before.get(cost.op)) is not None:
                rows.append(OpCost(cost.op, cost.tasks - past[0], cost.ns - past[1]))
        tasks = sum(cost.tasks for cost in costs) - sum(row.tasks for row in rows)
        ns = sum(cost.ns for cost in costs) - sum(row.ns for row in rows)
        return [*rows, OpCost(OTHER, tasks, ns)]
