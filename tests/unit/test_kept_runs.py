"""Runs of nights, campaigns and versions: what is kept of them, and what pages say."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import campaign
import figures
import night_page
import versions_page

from npu_dispatch.versions import TORCH_VERSIONS
from tests.torture.faults import count
from tests.torture.run import figures as of_parts


@pytest.mark.parametrize("tool", [night_page, versions_page])
def test_a_page_says_what_is_kept(tool: ModuleType):
    text = tool.PAGE.read_text()
    kept = [versions_page.kept()] if tool is versions_page else []

    assert tool.page(text, *kept) == text


def test_each_version_of_torch_and_python_that_is_promised_was_tried():
    runs = versions_page.kept()
    classifiers = (versions_page.ROOT / "pyproject.toml").read_text()

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

    run = versions_page.read(path, "abc")
    old = [{**run, "torch": "2.9.0"}, {**run, "commit": "old"}]

    assert (run["torch"], run["python"]) == ("2.14.1", "3.12")
    assert (run["passed"], run["failed"], run["skipped"]) == (10, 3, 3)
    assert versions_page.merged(old, [run]) == [old[0], run]
    with pytest.raises(ValueError, match=r"expected torch-VERSION-python-VERSION"):
        versions_page.read(tmp_path / "junit.xml", "abc")


def campaign_of(began: str, faults: int, livez: float) -> dict[str, object]:
    kept = dict.fromkeys(campaign.FIELDS, "as it was")
    found = {"faults injected": faults, campaign.WORST: livez}
    return {**kept, "began": began, "figures": found, "parts": {"faults": ["long"]}}


def test_runs_of_the_campaign_are_kept_once_and_summed_but_for_the_worst():
    early = campaign_of("2026-01-02", 3000, 20.5)
    late = campaign_of("2026-01-03", 70, 9.5)

    runs = campaign.merged(campaign.merged([], late), early)
    again = campaign.merged(runs, campaign_of("2026-01-03", 5, 2))

    assert [run["began"] for run in runs] == ["2026-01-02", "2026-01-03"]
    assert campaign.sums(runs) == {"faults injected": 3070, campaign.WORST: 20.5}
    assert [run["figures"]["faults injected"] for run in again] == [3000, 5]
    assert "parts" not in again[0]


def test_a_campaign_without_one_of_the_parts_still_has_every_figure():
    found = of_parts({"faults": {"injected": 3, "raised": 1, "right": 2, "bad": []}})

    assert set(campaign.TROUBLE) | {campaign.WORST} <= set(found)
    assert figures.of_torture(json.dumps({"figures": found})).startswith(
        "faults injected: 3, "
    )


def test_a_fault_counts_where_a_call_failed_and_a_hang_as_neither_outcome():
    told = dict.fromkeys(("cases", "injected", "raised", "right", "hangs"), 0)
    told["by_kind"] = {}

    for kind, case in [
        ("new", {"failed": 0, "right": True}),
        ("new", {"failed": 1, "right": True}),
        ("mmap", {"failed": 1, "raised": "MemoryError"}),
        ("new", {"failed": 1, "raised": "OSError", "bad": "at no line"}),
        ("new", {"hang": True, "bad": "hangs"}),
    ]:
        count(told, kind, case)

    assert told == {
        "cases": 5,
        "injected": 3,
        "raised": 1,
        "right": 1,
        "hangs": 1,
        "by_kind": {"new": 2, "mmap": 1},
    }


TESTS = """
98% tests passed, 1 tests failed out of 50
=== 1,000 things ===
== 2 failed, 1810 passed, 1 skipped, 7 deselected in 61.20s (0:01:01) ==
300 passed in 9.81s
make: *** [Makefile:123: test-python] Error 1
"""
OPERATORS = "85 s; results in x\n300 operators checked, 2 failed\nmake: *** Error 1\n"


@pytest.mark.parametrize(
    ("step", "log", "fact"),
    [
        ("test", TESTS, "ctest: 49 of 50; pytest: 2,110 passed, 2 failed, 1 skipped"),
        ("conformance", OPERATORS, "300 operators checked, 2 failed"),
        ("test", "", ""),
        ("conformance", "", ""),
    ],
)
def test_the_log_of_a_step_has_its_fact(step, log, fact):
    assert figures.find(step, log, 0) == fact


def test_results_are_those_of_this_run_and_of_mutants_that_compile(
    tmp_path, monkeypatch
):
    results = tmp_path / "results.json"
    results.write_text(json.dumps([{"by": by} for by in ("a", "", "-", "b")]))
    os.utime(results, (1000, 1000))
    monkeypatch.setitem(figures.OF_FILES, "mutants", (results, figures.of_mutants))

    assert figures.find("mutants", "", 2000) == ""
    assert figures.find("mutants", "", 900) == "2 of 3 noticed"
    assert figures.of_libraries("library\tresult\na\tworks\nb\tfails: x\n") == (
        "1 of 2 give cpu's figures"
    )
