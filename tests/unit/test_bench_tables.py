"""bench/: what becomes of the lines of several runs, and of missed goals."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[2] / "bench"))
import run_all
import tables


def line(ratio: float) -> dict[str, object]:
    return {"case": "a", "ratio": ratio, "kind": "x", "goals": {"ratio": ["<=", 0.5]}}


def test_a_figure_is_the_median_of_the_runs_beside_their_range():
    cases = run_all.merged([[{"bench": "b"}, line(r)] for r in (0.1, 0.4, 0.9)])
    assert cases["a"]["figures"]["ratio"] == {"median": 0.4, "least": 0.1, "most": 0.9}
    assert cases["a"]["missed"] == []
    assert tables.cell(cases, "a", "ratio") == "0.40 (0.10 to 0.90)"


def test_a_missed_goal_is_marked():
    cases = run_all.merged([[line(r)] for r in (0.6, 0.4, 0.9)])
    assert tables.cell(cases, "a", "ratio").endswith("**missed** (<= 0.5)")


def test_a_case_that_one_run_lacks_is_a_failure():
    with pytest.raises(SystemExit, match="1 times in 2 runs"):
        run_all.merged([[line(0.1)], []])


def test_a_row_whose_case_is_gone_is_a_failure():
    with pytest.raises(SystemExit, match="import_time has no import, ms"):
        tables.check({"import_time": {"cases": {}}})


def test_a_figure_within_a_sentence_is_the_median():
    cases = run_all.merged([[line(r)] for r in (0.1, 0.4, 0.9)])
    result = {"benches": {"b": {"cases": cases}}}

    text = "takes <!-- figure b a ratio -->?<!-- end --> of the time"

    assert tables.with_figures(text, result) == text.replace("?", "0.40")


def test_a_program_that_fails_stops_everything():
    failing = run_all.Program("x", (sys.executable, "-c", "raise SystemExit(3)"))
    with pytest.raises(SystemExit, match="failed"):
        run_all.run(failing)
