"""The judge of the conformance run, on runs written by hand."""

from __future__ import annotations

import pytest

from tests.conformance.check import Verdict, judge, read_list

GOOD = {"name": "good", "dtypes": {"float32": {"fwd": {"pass": 2}, "errors": []}}}
BAD = {
    "name": "bad.x",
    "dtypes": {
        "int64": {"fwd": {"pass": 1}, "out": {"fail": 1}, "errors": ["[out] no"]}
    },
}
GONE = {"name": "gone", "dtypes": {}, "crash": "worker died"}
# Nothing was compared: no samples, skipped ones, ones that fail alike.
EMPTY = [
    {"name": "none", "dtypes": {}},
    {"name": "zero", "dtypes": {"int64": {"fwd": {"pass": 0}, "errors": []}}},
    {"name": "skipped", "dtypes": {"int64": {"fwd": {"skip": 3}, "errors": []}}},
    {"name": "refused", "dtypes": {"int64": {"fwd": {"raises": 3}, "errors": []}}},
]


def judged(*ops, full=False, impossible="", unchecked="", expected=1) -> Verdict:
    return judge(
        {"full": full, "ops": list(ops)},
        read_list(impossible),
        read_list(unchecked),
        expected,
    )


def test_a_good_run_is_one_line():
    verdict = judged(GOOD, full=True)

    assert verdict.complaints == []
    assert verdict.summary == "1 operators checked, 0 failed"


def test_failures_and_crashes_are_named():
    verdict = judged(GOOD, BAD, GONE)

    assert verdict.complaints == [
        "fails: bad.x int64 out: [out] no",
        "fails: gone all crash: worker died",
    ]
    assert verdict.summary == "2 operators checked, 2 failed"


@pytest.mark.parametrize("op", EMPTY, ids=[op["name"] for op in EMPTY])
def test_an_operator_of_which_nothing_was_compared_is_not_checked(op):
    verdict = judged(GOOD, op)

    assert verdict.complaints == [f"nothing was compared: {op['name']}"]
    assert verdict.summary == "1 operators checked, 1 failed"
    assert verdict.nothing_to_check == [op["name"]]


@pytest.mark.parametrize("op", EMPTY, ids=[op["name"] for op in EMPTY])
def test_what_cannot_be_checked_is_listed_and_not_counted(op):
    verdict = judged(GOOD, op, full=True, unchecked=f"{op['name']} = why\n")

    assert verdict.complaints == []
    assert verdict.summary == "1 operators checked, 0 failed"
    assert verdict.nothing_to_check == [op["name"]]


def test_what_is_listed_as_unchecked_and_is_checked_is_wrong():
    assert judged(GOOD, full=True, unchecked="good = why\n").complaints == [
        "unchecked.txt lists good: remove it"
    ]


def test_what_is_listed_as_unchecked_and_is_gone_is_wrong_in_a_full_run():
    listed = "gone = why\n"

    assert judged(GOOD, full=True, unchecked=listed).complaints == [
        "unchecked.txt lists gone: remove it"
    ]
    assert judged(GOOD, unchecked=listed).complaints == []


def test_a_full_run_checks_as_many_operators_as_expected():
    assert judged(GOOD, full=True, expected=2).complaints == [
        "1 operators checked, expected 2"
    ]
    assert judged(GOOD, expected=2).complaints == []


def test_a_run_that_checks_nothing_is_wrong():
    assert judged().complaints == ["nothing was checked"]


def test_listed_failures_are_excused_and_stale_entries_are_not():
    verdict = judged(
        *(GOOD, BAD, GONE),
        impossible="# why\nbad.* int64 out = x\ngone .* = y\ngood .* = z\n",
    )

    assert verdict.complaints == ["excuses nothing, remove it: good .*"]
    assert verdict.summary == "2 operators checked, 0 failed"


def test_an_entry_for_what_did_not_run_is_stale_in_a_full_run_only():
    impossible = "other .* = x\n"

    assert judged(GOOD, impossible=impossible).complaints == []
    assert judged(GOOD, impossible=impossible, full=True).complaints == [
        "excuses nothing, remove it: other .*"
    ]


def test_an_entry_needs_a_reason():
    with pytest.raises(ValueError, match="no reason"):
        read_list("bad .* =\n")
