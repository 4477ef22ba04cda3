"""The page is what the last run of the matrix found."""

from __future__ import annotations

import datetime
import importlib.util
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
MOST_AGE = datetime.timedelta(days=30)


@pytest.fixture
def run(monkeypatch):
    monkeypatch.syspath_prepend(str(HERE))
    spec = importlib.util.spec_from_file_location("compatibility_run", HERE / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["matrix"]


def test_every_row_has_a_program_and_a_result(run):
    programs = [row.program for row in run.MATRIX]

    assert len(set(programs)) == len(programs)
    for name in programs:
        assert (HERE / "programs" / f"{name}.py").is_file(), name
    assert set(run.read_results()) == set(programs)


def test_the_page_is_of_these_results(run):
    order = [row.program for row in run.MATRIX]
    rows = sorted(
        run.read_results().values(), key=lambda row: order.index(row["program"])
    )

    assert run.DOCUMENT.read_text() == run.document(rows)
    assert all(row["version"] and row["since"] for row in rows)


@pytest.mark.nightly
def test_no_row_was_last_tried_more_than_30_days_ago(run):
    oldest = min(row["run"] for row in run.read_results().values())

    assert datetime.date.fromisoformat(oldest) >= datetime.date.today() - MOST_AGE


def test_a_program_that_gives_other_figures_fails_its_row_alone(run, monkeypatch):
    found = {"cpu": [1.0, 2.0], "npu": [1.0]}
    monkeypatch.setattr(run, "figures", lambda row, device: (found[device], "1.0"))

    assert run.outcome(run.MATRIX[0]) == (
        "1.0",
        "gives 1 figures where cpu gives 2",
    )


def test_a_program_whose_output_ends_otherwise_fails_its_row_alone(run, monkeypatch):
    def figures(row, device):
        if device == "npu":
            raise ValueError("Expecting value: line 1 column 1")
        return [1.0], "1.0"

    monkeypatch.setattr(run, "figures", figures)

    assert run.outcome(run.MATRIX[0])[1].startswith("fails: Expecting value")


def test_what_differs_is_told_and_what_worked_is_missed(run, monkeypatch, tmp_path):
    row = run.MATRIX[0]
    monkeypatch.setattr(run, "RESULTS", tmp_path / "results.tsv")
    monkeypatch.setattr(run, "DOCUMENT", tmp_path / "page.md")
    monkeypatch.setattr(sys, "argv", ["run.py", "--no-install", "--only", row.program])
    found = {"cpu": [1.0, 2.0], "npu": [1.0, 2.0]}
    monkeypatch.setattr(run, "figures", lambda row, device: (found[device], "1.0"))

    assert run.main() == 0
    since = run.read_results()[row.program]["since"]
    found["npu"] = [1.0, 2.1]
    assert run.main() == 1

    worse = run.read_results()[row.program]
    assert worse["result"] == "differs from cpu by 5.0e-02" and worse["since"] >= since
    assert "0 of 1 give cpu's figures" in run.DOCUMENT.read_text()
