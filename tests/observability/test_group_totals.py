"""What the groups of ranks have done, added up from readings of their logs."""

from __future__ import annotations

from npu_dispatch.prometheus.group_totals import GroupTotal, GroupTotals
from npu_dispatch.stats.collectives import (
    CollectiveGroup,
    CollectiveLog,
    LoggedCollective,
    LoggedTensor,
)

GROUP = CollectiveGroup("0", "default_pg", "0123456789abcdef", 0, (0, 1))


def call(number: int, state: str = "completed", ms: int = 3) -> LoggedCollective:
    given = LoggedTensor((4, 8), "Float", is_output=False, peer=-1)
    result = LoggedTensor((8, 8), "Float", is_output=True, peer=-1)
    return LoggedCollective(
        number=number,
        group=GROUP,
        seq=number,
        is_message=False,
        name="all_gather",
        state=state,
        at="",
        scheduled_ns=1,
        started_ns=10**6,
        ended_ns=10**6 + ms * 10**6 if state == "completed" else 0,
        timeout_ms=1,
        root=-1,
        reduction="",
        device=0,
        stream=0,
        tensors=(given, result),
    )


def log(*calls: LoggedCollective) -> CollectiveLog:
    return CollectiveLog((GROUP,), calls, 0)


def test_each_call_counts_once_when_it_has_ended():
    totals = GroupTotals()
    totals.update(log(call(1), call(2, "started"), call(3)))
    totals.update(log(call(2), call(3), call(4, "failed")))
    totals.update(log(call(2), call(3), call(4, "failed")))

    assert totals.rows() == [
        GroupTotal("default_pg", "01234567", 3, 3 * 4 * 8 * 4, 9 * 10**6)
    ]


def test_a_group_without_calls_has_a_zero():
    totals = GroupTotals()
    totals.update(log())

    assert totals.rows() == [GroupTotal("default_pg", "01234567", 0, 0, 0)]
