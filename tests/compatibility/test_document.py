"""Each program has a result; one that gives other figures is told of, alone."""

from __future__ import annotations

import datetime
import sys

import pytest

from tests.compatibility import run
from tests.search import report

MOST_AGE = datetime.timedelta(days=30)


def test_every_program_has_a_row_and_a_result():
    results = run.read_results()

    assert set(results) == {row.program for row in run.MATRIX}
    assert {(r.program, r.library, r.what) for r in run.MATRIX} == {
        (name, row["library"], row["what"]) for name, row in results.items()
    }
    assert all(row["version"] and row["since"] for row in results.values())


@pytest.mark.nightly
def test_no_row_was_last_tried_more_than_30_days_ago():
    oldest = min(row["run"] for row in run.read_results().values())

    assert datetime.date.fromisoformat(oldest) >= datetime.date.today() - MOST_AGE


@pytest.mark.parametrize(
    ("npu", "result"),
    [
        ([1.0], "gives 1 figures where cpu gives 2"),
        ([1.0, 2.1], "differs from cpu by 5.0e-02"),
        (ValueError("Expecting value: line 1"), "fails: Expecting value: line 1"),
    ],
)
def test_a_row_that_worked_and_does_not_is_a_finding(
    npu, result, monkeypatch, tmp_path
):
    row = run.MATRIX[0]
    found = {"cpu": [1.0, 2.0], "npu": [1.0, 2.0]}

    def figures(row, device):
        if isinstance(found[device], Exception):
            raise found[device]
        return found[device], "1.0"

    monkeypatch.setattr(run, "figures", figures)
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.tsv")
    monkeypatch.setattr(run.pages, "write", lambda: None)
    monkeypatch.setattr(report, "OUT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "--no-install", "--only", row.program])
    assert run.main() == 0
    found["npu"] = npu

    assert run.main() == 1

    assert run.read_results()[row.program]["result"] == result
    [only] = (tmp_path / "findings" / "compatibility").iterdir()
    assert result in only.read_text()
