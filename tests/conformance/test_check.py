"""The judge of the conformance run, on runs written by hand."""

from __future__ import annotations

import pytest

from tests.conformance.check import judge, read_list

RUN = {
    "ops": [
        {"name": "good", "dtypes": {"float32": {"fwd": {"pass": 2}, "errors": []}}},
        {
            "name": "bad.x",
            "dtypes": {
                "int64": {
                    "fwd": {"pass": 1},
                    "out": {"fail": 1},
                    "errors": ["[out] no"],
                }
            },
        },
        {"name": "gone", "dtypes": {}, "crash": "worker died"},
    ]
}


def test_failures_and_crashes_are_named():
    assert judge([RUN], {}) == [
        "fails: bad.x int64 out: [out] no",
        "fails: gone all crash: worker died",
    ]


def test_listed_failures_are_excused_and_stale_entries_are_not():
    entries = read_list("# why\nbad.* int64 out = x\ngone .* = y\ngood .* = z\n")

    assert judge([RUN], entries) == ["excuses nothing, remove it: good .*"]


def test_an_entry_needs_a_reason():
    with pytest.raises(ValueError, match="no reason"):
        read_list("bad .* =\n")
