"""Series by operator: what they add up to, and that none of them ever falls."""

from __future__ import annotations

from npu_dispatch.observe.segment.values import OpCost
from npu_dispatch.observe.serve.scrapes import TopOps


def dearest_first(cost: dict[str, tuple[int, int]]) -> list[OpCost]:
    found = [OpCost(op, *of) for op, of in cost.items()]
    return sorted(found, key=lambda of: -of.ns)


def test_the_first_look_shows_all_that_the_dearest_have_cost():
    top = TopOps(1)

    rows = top.rows(dearest_first({"add": (3, 30), "mm": (1, 50), "sum": (2, 10)}))

    assert rows == [OpCost("mm", 1, 50), OpCost("other", 5, 40)]


def test_no_series_falls_when_operators_come_among_the_dearest():
    top = TopOps(3)
    cost = {f"op{i}": (0, 0) for i in range(20)}
    shown: dict[str, OpCost] = {}
    for step in range(400):
        for i, (op, (tasks, ns)) in enumerate(cost.items()):
            # Another operator, long known among the others, is dear for a while.
            dear = i == 19 - step // 50
            cost[op] = tasks + 1, ns + (1000 if dear else 1)

        rows = top.rows(dearest_first(cost))

        assert rows[-1].op == "other"
        assert sum(row.tasks for row in rows) == sum(n for n, _ in cost.values())
        assert sum(row.ns for row in rows) == sum(ns for _, ns in cost.values())
        now = {row.op: row for row in rows}
        assert shown.keys() <= now.keys(), "an operator lost its series"
        for op, before in shown.items():
            assert now[op].tasks >= before.tasks, op
            assert now[op].ns >= before.ns, op
        shown = now
    assert len(shown) == 7, "twice as many as asked for, and the others"


def test_an_operator_that_came_later_counts_from_then_on():
    top = TopOps(1)
    top.rows(dearest_first({"mm": (1, 50), "add": (3, 30)}))

    entered = top.rows(dearest_first({"mm": (1, 50), "add": (6, 60)}))
    later = top.rows(dearest_first({"mm": (1, 50), "add": (8, 80)}))

    assert OpCost("add", 0, 0) in entered
    assert entered[-1] == OpCost("other", 6, 60)
    assert OpCost("add", 2, 20) in later
    assert later[-1] == OpCost("other", 6, 60)
