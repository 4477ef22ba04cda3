"""What is kept of runs, what pages say of it, and what says best what a step did."""

import json
import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import figures
import pages

from npu_dispatch.versions import TORCH_VERSIONS
from tests.judges import run as judges
from tests.torture import part
from tests.torture.run import figures as of_parts


def test_pages_say_what_is_kept():
    texts = {name: (pages.DOCS / f"{name}.md").read_text() for name in pages.PAGES}

    assert [name for name in texts if pages.page(texts[name]) != texts[name]] == []
    blocks = {
        found[1] for text in texts.values() for found in pages.BLOCK.findall(text)
    }
    assert blocks == set(pages.BLOCKS)


def test_each_version_of_torch_and_python_that_is_promised_was_tried():
    runs = pages.kept("versions")
    classifiers = (pages.ROOT / "pyproject.toml").read_text()

    assert set(TORCH_VERSIONS) <= {run["torch"] for run in runs}
    assert {run["python"] for run in runs} == {
        line.split(":: ")[-1].rstrip('",')
        for line in classifiers.splitlines()
        if "Python :: 3." in line
    }


def test_a_run_of_a_version_is_read_and_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "torch-2.14.1-python3.12.xml"
    path.write_text("""<testsuites><testsuite name="pytest" errors="1" failures="2"
        skipped="3" tests="16" timestamp="2026-01-02T03:04:05"/></testsuites>""")

    run = pages.run_of_version(path, "abc")
    old = [{**run, "torch": "2.9.0"}, {**run, "commit": "old"}]

    assert (run["torch"], run["python"]) == ("2.14.1", "3.12")
    assert (run["passed"], run["failed"], run["skipped"]) == (10, 3, 3)
    assert pages.with_versions(old, [run]) == [old[0], run]
    with pytest.raises(ValueError, match=r"expected torch-VERSION-python-VERSION"):
        pages.run_of_version(tmp_path / "junit.xml", "abc")


def campaign_of(began: str, faults: int, livez: float) -> pages.Run:
    counts = {"faults injected": faults, pages.WORST: livez}
    return {"began": began, "counts": counts, "seed": {}, "details": ["long"]}


def test_runs_of_the_campaign_are_kept_once_and_summed_but_for_the_worst():
    early = campaign_of("2026-01-02", 3000, 20.5)
    late = campaign_of("2026-01-03", 70, 9.5)

    runs = pages.with_campaign(pages.with_campaign(None, late), early)
    again = pages.with_campaign(runs, campaign_of("2026-01-03", 5, 2))

    assert [run["began"] for run in runs] == ["2026-01-02", "2026-01-03"]
    assert pages.sums(runs) == {"faults injected": 3070, pages.WORST: 20.5}
    assert [run["counts"]["faults injected"] for run in again] == [3000, 5]
    assert "details" not in again[0]


def test_a_campaign_without_one_of_the_parts_still_has_every_figure():
    found = of_parts({"faults": {"injected": 3, "raised": 1, "right": 2, "bad": []}})

    assert {*pages.TROUBLE, pages.WORST} <= set(found)
    assert found["faults injected"] == 3


def test_each_fault_of_the_campaign_has_one_outcome_and_what_was_not_run_is_told():
    counts = of_parts({"faults": {"injected": 9, "raised": 4, "right": 3, "bad": []}})
    run = {"began": "2026-01-02", "commit": "abc", "torch": "2", "seconds": 120}

    heads, _, row, total = (
        line.strip("| ").split(" | ")
        for line in pages.of_campaign([{**run, "counts": counts}]).splitlines()
    )

    shown = dict(zip(heads, row, strict=True))
    assert [shown[head] for head in heads if head.startswith("faults")] == [*"9432"]
    assert shown["operators run"] == shown["/livez requests answered"] == "not run"
    assert total[-2:] == row[-2:] == ["0", "0"]


def test_a_fault_counts_where_a_call_failed_and_a_hang_as_neither_outcome():
    told = part.sums(7)

    for kind, case in [
        ("new", {"failed": 0, "right": True}),
        ("new", {"failed": 1, "right": True}),
        ("mmap", {"failed": 1, "raised": "MemoryError"}),
        ("new", {"failed": 1, "raised": "OSError", "bad": "at no line"}),
        ("new", {"hang": True, "bad": "hangs"}),
    ]:
        part.add(told, case, kind, 3)

    bad = told.pop("bad")
    assert [(wrong["what"], wrong["text"]) for wrong in bad] == [
        ("new 3", "at no line"),
        ("new 3", "hangs"),
    ]
    assert told == {
        "seed": 7,
        "cases": 5,
        "injected": 3,
        "raised": 1,
        "right": 1,
        "hangs": 1,
        "by_kind": {"new": 4, "mmap": 1},
        "complete": False,
    }


def test_cases_come_until_the_time_is_over():
    none, all_of_them = part.sums(1), part.sums(1)

    assert list(part.in_time("abc", -1, none)) == []
    assert list(part.in_time("abc", 600, all_of_them)) == ["a", "b", "c"]
    assert (none["complete"], all_of_them["complete"]) == (False, True)


def test_a_third_that_was_not_run_and_a_rate_below_the_goal_are_told():
    counts = {"passed": 98, "failed": 2, "crashed": 0, "hung": 0, "skipped": 7}
    counts["not right on cpu either"] = 1
    failures = {"failed": {f"a/t.py::test_{n}": "no idea" for n in range(2)}}
    about = {"ended": "2026-01-01 00:00", "commit": "abc", "torch": "2", "cores": 2}
    done = {"1": {"counts": counts, "failures": failures, **about}}

    text = pages.of_judges({"Suite": {"version": "1", "source": "x", "parts": done}})

    assert pages.PARTS == judges.PARTS
    assert "| 98 | 2 | 0 | 0 | 98.00 % (goal: 99%) | 1 | 7 |" in text
    assert "| one third | 2026-01-01 00:00, `abc` |" in text
    assert "| 2 | not explained yet | `t.py::test_0` |" in text


TESTS = """
98% tests passed, 1 tests failed out of 50
=== 1,000 things ===
== 2 failed, 1810 passed, 1 skipped, 7 deselected in 61.20s (0:01:01) ==
300 passed in 9.81s
make: *** [Makefile:123: test-python] Error 1
"""


def test_the_fact_of_a_step_is_in_its_log_or_in_its_report_of_this_run(tmp_path):
    report = tmp_path / "mutants.json"
    report.write_text(json.dumps({"summary": "planted: 3, noticed: 2, findings: 1"}))
    os.utime(report, (1000, 1000))

    assert figures.find("test", TESTS, 0) == (
        "ctest: 49 of 50; pytest: 2,110 passed, 2 failed, 1 skipped"
    )
    assert figures.find("test", "", 0) == ""
    lines = "out/coverage/python.txt:TOTAL  16539  1437   91%\n"
    lines += "out/coverage/cpp.txt:TOTAL    38664  37564    97%\n"
    reached = "lines reached: 91% of python, 97% of cpp"
    assert figures.find("coverage", lines, 0) == reached
    assert figures.find("mutants", "", 2000, tmp_path) == ""
    told = figures.find("mutants", "", 900, tmp_path)
    assert told == "planted: 3, noticed: 2, findings: 1"
