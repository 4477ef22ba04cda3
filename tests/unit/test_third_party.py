"""THIRD_PARTY.md names each file of others that the packages contain."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "npu_dispatch/observe/serve/page/uPlot"
LIST = (ROOT / "THIRD_PARTY.md").read_text()


def test_the_list_has_the_sums_of_the_files_that_are_there():
    listed = dict(re.findall(r"^\| `(\S+)` \| `([0-9a-f]{64})` \|$", LIST, re.M))

    sums = {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()
        for file in FOLDER.iterdir()
    }
    assert listed == sums


def test_the_list_says_the_version_that_the_file_says():
    (version,) = re.findall(r"^## uPlot (\S+)$", LIST, re.M)

    assert f"(v{version})" in (FOLDER / "uPlot.iife.min.js").read_text()[:200]
    assert "Leon Sorokin" in (FOLDER / "LICENSE").read_text()


def test_files_of_others_are_nowhere_else():
    minified = set((ROOT / "npu_dispatch").rglob("*.min.*"))

    assert {path.parent for path in minified} == {FOLDER}
