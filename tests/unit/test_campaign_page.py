"""tools/campaign.py: the runs of the campaign that are kept, and their sums."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import campaign
import figures


def run(began: str, faults: int, livez: float, hangs: int = 0) -> dict[str, object]:
    return {
        "began": began,
        "minutes": 30.4,
        "commit": "abc",
        "cores": 2,
        "torch": "2.13.0",
        "seeds": {"faults": 7, "soak": 8},
        "figures": {
            "faults injected": faults,
            "/livez, slowest, ms": livez,
            "hangs": hangs,
            "tasks lost": 0,
            "wrong, in all": 0,
        },
        "parts": {"faults": {"bad": ["long"]}},
    }


def test_the_page_sums_what_the_runs_did_and_shows_their_worst():
    text = campaign.table([run("2026-01-02", 3000, 20.5), run("2026-01-03", 70, 9.5)])

    assert "| faults injected | 3,070 |\n" in text
    assert "| /livez, slowest, ms | 20.5 |\n" in text
    assert "| minutes, in all | 61 |\n" in text


def test_each_run_has_its_commit_its_seeds_and_its_hangs():
    text = campaign.table([run("2026-01-02", 1, 2), run("2026-01-03", 1, 2, hangs=3)])

    about = "30 | `abc` | 2 | 2.13.0"
    assert f"| 2026-01-02 | {about} | 0 | 0 | 0 | faults 7, soak 8 |\n" in text
    assert f"| 2026-01-03 | {about} | 3 | 0 | 0 | faults 7, soak 8 |\n" in text
    assert "| hangs | 3 |\n" in text


def test_a_run_is_kept_once_and_without_its_findings():
    early, late = run("2026-01-02", 1, 2), run("2026-01-03", 1, 2)

    runs = campaign.merged(campaign.merged([], late), early)
    again = campaign.merged(runs, run("2026-01-03", 5, 2))

    assert [r["began"] for r in runs] == ["2026-01-02", "2026-01-03"]
    assert [r["figures"]["faults injected"] for r in again] == [1, 5]
    assert "parts" not in again[0]
    assert json.loads(json.dumps(again)) == again


def test_the_page_says_plainly_that_there_was_no_campaign(tmp_path):
    assert campaign.kept(tmp_path / "none.json") == []
    assert campaign.table([]) == "No campaign has been kept yet.\n"


def test_a_run_without_one_of_the_parts_still_has_every_figure():
    from tests.torture.run import figures as of_parts

    found = of_parts({"faults": {"injected": 3, "raised": 1, "right": 2, "bad": []}})

    assert set(campaign.TROUBLE) | {campaign.WORST} <= set(found)
    assert figures.of_torture(json.dumps({"figures": found})).startswith(
        "faults injected: 3, "
    )
