"""tools/versions_page.py: what docs/versions.md says was tried."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import versions_page

from npu_dispatch.versions import TORCH_VERSIONS

XML = """<testsuites><testsuite name="pytest" errors="1" failures="2" skipped="3"
tests="16" timestamp="2026-01-02T03:04:05"/></testsuites>"""


def test_the_page_says_what_the_runs_said_that_are_kept():
    text = versions_page.PAGE.read_text()

    assert versions_page.page(text, versions_page.kept()) == text
    assert "<!-- figures versions -->" in text


def test_each_version_of_torch_and_python_that_is_promised_was_tried():
    runs = versions_page.kept()
    classifiers = (versions_page.ROOT / "pyproject.toml").read_text()
    pythons = {run["python"] for run in runs}

    assert set(TORCH_VERSIONS) <= {run["torch"] for run in runs}
    assert pythons == {
        line.split(":: ")[-1].rstrip('",')
        for line in classifiers.splitlines()
        if "Python :: 3." in line
    }


def test_a_run_is_read_and_takes_the_place_of_the_one_before(tmp_path):
    path = tmp_path / "torch-2.14.1-python3.12.xml"
    path.write_text(XML)

    run = versions_page.read(path, "abc")
    old = [{**run, "torch": "2.9.0"}, {**run, "commit": "old"}]

    assert (run["torch"], run["python"]) == ("2.14.1", "3.12")
    assert (run["passed"], run["failed"], run["skipped"]) == (10, 3, 3)
    assert versions_page.merged(old, [run]) == [old[0], run]
    assert "| 2.14.1 | 3.12 | 10 | 3 | 3 | 2026-01-02 | `abc` |" in versions_page.table(
        [run]
    )


def test_a_file_of_another_name_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"expected torch-VERSION-python-VERSION"):
        versions_page.read(tmp_path / "junit.xml", "abc")
