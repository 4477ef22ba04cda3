"""What the fuzzer has found: mended stays mended, known is still there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from npu_dispatch.versions import TORCH_VERSION
from tests.differential.known import KNOWN

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def shown():
    """Of each program, in a process that has not used the device."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential.corpus"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def names(kind):
    return sorted(p.stem for p in (Path(__file__).with_name("corpus") / kind).glob("*"))


@pytest.mark.parametrize("name", names("mended"))
def test_mended(shown, name):
    assert shown[f"mended/{name}"] == ""


@pytest.mark.parametrize("entry", KNOWN, ids=lambda entry: entry.name)
def test_known_is_still_there(shown, entry):
    name = entry.name
    if not TORCH_VERSION.startswith(entry.torch):
        assert shown[f"known/{name}"] != name
        return
    assert shown[f"known/{name}"] == name, (
        "where it no longer differs: move the program to corpus/mended and remove "
        "its entry from known.py"
    )


def test_each_known_difference_has_a_program():
    assert sorted(entry.name for entry in KNOWN) == names("known")
