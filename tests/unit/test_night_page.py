"""tools/night_page.py: what docs/reliability.md says of a night."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import night_page

NIGHT = {
    "began": "2026-01-02 03:04",
    "commit": "abc",
    "cores": 2,
    "not_run": [],
    "steps": [
        {
            "step": "test",
            "seconds": 1234.5,
            "result": "failed, 2",
            "figure": "pytest: 7 passed, 1 failed",
        },
        {
            "step": "torture",
            "seconds": 400,
            "result": "passed",
            "figure": "hangs: 0",
        },
    ],
}


def test_the_page_says_what_the_night_says_that_is_kept():
    text = night_page.PAGE.read_text()

    assert night_page.page(text) == text
    for name in night_page.BLOCKS:
        assert f"<!-- figures {name} -->" in text


def test_a_night_has_a_row_for_each_step():
    text = night_page.steps(NIGHT)

    assert "| test | 1,234 | failed, 2 | pytest: 7 passed, 1 failed |\n" in text
    assert "| all | 1,634 |  |  |\n" in text
    assert "2026-01-02 03:04 UTC, commit `abc`" in text
    assert "not a whole night" not in text


def test_a_night_that_was_cut_off_says_what_did_not_run():
    text = night_page.steps(NIGHT | {"not_run": ["mutants", "lint"]})

    assert "not a whole night: `mutants`, `lint` did not run" in text


def test_the_page_says_plainly_that_there_was_no_night():
    nothing = {"steps": [], "not_run": []}

    assert night_page.steps(nothing) == "No night has been kept yet.\n"


def test_a_run_of_the_fuzzer_says_which_planted_bugs_it_has_found():
    run = {
        "ended": "2026-01-02 03:04",
        "commit": "abc",
        "cores": 2,
        "seeds": [7, 8],
        "figures": {"sequences": 4000, "findings": 0},
        "known": {"words": 3},
        "planted": [
            {"name": "late", "found": True, "sequences": 1012},
            {"name": "lost", "found": False, "sequences": 4000},
        ],
    }

    text = night_page.fuzz(run)

    assert "| sequences | 4,000 |\n| findings | 0 |\n| known: `words` | 3 |\n" in text
    assert "| planted bugs found | 1 of 2 |\n" in text
    assert "| `late` | yes | 1,012 |\n| `lost` | **no** | 4,000 |\n" in text
    assert "commit `abc`, seeds 7, 8." in text
    assert night_page.fuzz(None) == "No run has been kept yet.\n"
