"""tools/figures.py: the fact that says what a step did."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import figures

TESTS = """
98% tests passed, 1 tests failed out of 50
=== 1,000 things ===
== 2 failed, 1810 passed, 1 skipped, 7 deselected in 61.20s (0:01:01) ==
300 passed in 9.81s
make: *** [Makefile:123: test-python] Error 1
"""


def test_the_runs_of_ctest_and_of_pytest_are_added_up():
    fact = figures.find("test", TESTS, 0)

    assert fact == "ctest: 49 of 50; pytest: 2,110 passed, 2 failed, 1 skipped"


def test_the_operators_are_those_of_the_last_such_line():
    log = "85 s; results in x\n300 operators checked, 2 failed\nmake: *** Error 1\n"

    assert figures.find("conformance", log, 0) == "300 operators checked, 2 failed"


def test_a_step_that_said_nothing_has_no_fact():
    assert figures.find("test", "", 0) == ""
    assert figures.find("conformance", "", 0) == ""


def test_mutants_that_do_not_compile_are_not_counted(tmp_path, monkeypatch):
    results = tmp_path / "results.json"
    results.write_text(json.dumps([{"by": by} for by in ("a", "", "-", "b")]))
    monkeypatch.setitem(
        figures.OF_FILES, "mutants", (results, figures.OF_FILES["mutants"][1])
    )

    assert figures.find("mutants", "", 0) == "2 of 3 noticed"


def test_libraries_are_counted_that_work():
    table = "library\tresult\na\tworks\nb\tfails: x\n"

    assert figures.of_libraries(table) == "1 of 2 give cpu's figures"


def test_the_campaign_is_told_by_its_faults_and_what_came_of_them():
    found = {"faults injected": 3070, "wrong, in all": 0, "hangs": 1, "tasks lost": 0}

    fact = figures.of_torture(json.dumps({"figures": found}))

    assert fact == "faults injected: 3,070, wrong, in all: 0, hangs: 1"


def test_results_of_an_earlier_run_say_nothing(tmp_path, monkeypatch):
    results = tmp_path / "results.json"
    results.write_text("[]")
    os.utime(results, (1000, 1000))
    monkeypatch.setitem(figures.OF_FILES, "mutants", (results, figures.of_mutants))

    assert figures.find("mutants", "", 2000) == ""
    assert figures.find("mutants", "", 900) == "0 of 0 noticed"
