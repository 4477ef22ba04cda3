"""docs/judges.md is what docs/judges.json says."""

from __future__ import annotations

import json

from tests.judges import page, run


def test_the_page_is_made_of_the_kept_results() -> None:
    assert page.PAGE.read_text() == page.page(json.loads(page.KEPT.read_text()))
    assert page.KEPT == run.KEPT and page.PARTS == run.PARTS


def test_a_third_that_was_not_run_and_a_missed_goal_are_told() -> None:
    counts = {"passed": 98, "failed": 2, "crashed": 0, "hung": 0, "skipped": 7}
    counts["not right on cpu either"] = 1
    failures = [
        {"test": f"a/t.py::test_{n}", "outcome": "failed", "message": "no idea"}
        for n in range(2)
    ]
    about = {"ended": "2026-01-01 00:00", "commit": "abc", "torch": "2", "cores": 2}
    kept = {
        "Suite": {
            "version": "1",
            "source": "here",
            "parts": {"1": {"counts": counts, "failures": failures, **about}},
        }
    }
    text = page.page(kept)
    assert "| 98 | 2 | 0 | 0 | 98.00 % (missed) | 1 | 7 |" in text
    assert "| 0 | not run yet" in text and "| 1 | 2026-01-01 00:00 | `abc`" in text
    assert "| 2 | not explained yet | `t.py::test_0` |" in text
