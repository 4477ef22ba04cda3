"""The judge of the conformance run, on runs written by hand."""

from __future__ import annotations

import pytest

from tests.conformance.check import judge, read_list

GOOD = {"name": "good", "dtypes": {"float32": {"fwd": {"pass": 2}, "errors": []}}}
BAD = {
    "name": "bad.x",
    "dtypes": {
        "int64": {"fwd": {"pass": 1}, "out": {"fail": 1}, "errors": ["[out] no"]}
    },
}
GONE = {"name": "gone", "dtypes": {}, "crash": "worker died"}
# Of each nothing was compared: no samples, skipped ones, ones that fail alike.
EMPTY = [
    {"name": "none", "dtypes": {}},
    *(
        {"name": outcome, "dtypes": {"int64": {"fwd": {outcome: n}, "errors": []}}}
        for outcome, n in (("pass", 0), ("skip", 3), ("raises", 3))
    ),
]
BAD_AND_GONE = [("bad.x int64 out", "[out] no"), ("gone all crash", "worker died")]
EXCUSED = "# why\nbad.* int64 out = x\ngone .* = y\n"
# Operators, what else the judge is told, and its complaints; checked and failed ones.
RUNS = [
    ([GOOD], {"full": True}, [], (1, 0)),
    ([GOOD, BAD, GONE], {}, BAD_AND_GONE, (2, 2)),
    ([], {}, ["nothing was checked"], (0, 0)),
    *(
        row
        for op in EMPTY
        for row in (
            ([GOOD, op], {}, [f"nothing was compared: {op['name']}"], (1, 1)),
            # What cannot be checked is listed, and not counted.
            ([GOOD, op], {"full": True, "unchecked": f"{op['name']} = x"}, [], (1, 0)),
        )
    ),
    (
        [GOOD],
        {"full": True, "unchecked": "good = x"},
        ["unchecked.txt lists good: remove it"],
        (1, 0),
    ),
    # An entry for what is gone is stale in a full run only.
    (
        [GOOD],
        {"full": True, "unchecked": "gone = x"},
        ["unchecked.txt lists gone: remove it"],
        (1, 0),
    ),
    ([GOOD], {"unchecked": "gone = x"}, [], (1, 0)),
    (
        [GOOD],
        {"full": True, "expected": 2},
        ["1 operators checked, expected 2"],
        (1, 0),
    ),
    ([GOOD], {"expected": 2}, [], (1, 0)),
    (
        [GOOD, BAD, GONE],
        {"impossible": f"{EXCUSED}good .* = z"},
        ["excuses nothing, remove it: good .*"],
        (2, 0),
    ),
    ([GOOD], {"impossible": "other .* = x"}, [], (1, 0)),
    (
        [GOOD],
        {"full": True, "impossible": "other .* = x"},
        ["excuses nothing, remove it: other .*"],
        (1, 0),
    ),
]


@pytest.mark.parametrize(("ops", "told", "complaints", "counts"), RUNS)
def test_a_run_is_judged_by_what_was_compared_and_by_the_lists(
    ops, told, complaints, counts
):
    verdict = judge(
        {"full": told.get("full", False), "ops": ops},
        read_list(told.get("impossible", "")),
        read_list(told.get("unchecked", "")),
        told.get("expected", 1),
    )

    assert verdict.complaints == [
        c if isinstance(c, tuple) else (c, "") for c in complaints
    ]
    assert (verdict.checked, verdict.failed) == counts
    nothing = [op["name"] for op in ops if op in EMPTY]
    assert verdict.nothing_to_check == nothing


def test_an_entry_needs_a_reason():
    with pytest.raises(ValueError, match="no reason"):
        read_list("bad .* =\n")
