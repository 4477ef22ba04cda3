"""The fuzzer finds each bug that is planted for it; `make fuzz` looks for others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLANTED = re.findall(
    r"^@_bug\ndef (\w+)", Path(__file__).with_name("planted.py").read_text(), re.M
)


def fuzz(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.differential.fuzz", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=170,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(bug):
    done = fuzz("--seconds", "60", "--plant", bug, "--seed", "1")
    assert done.returncode == 1, done.stdout + done.stderr[-2000:]
    assert ": 0 findings" not in done.stdout


def test_new_sequences_do_on_the_device_what_they_do_on_cpu(capfd):
    """Other ones at each run, 4,000 or at night for two minutes.

    --seed repeats a round. What differs is printed as a program to be run again.
    """
    rounds = [] if os.environ.get("NPU_TEST_NIGHTLY") else ["--rounds", "10"]
    done = fuzz("--seconds", "120", "--keep-going", *rounds)
    seeds = re.findall(r"^--seed (\d+)", done.stdout, re.M)
    summary = [line for line in done.stdout.splitlines() if " sequences, " in line]
    with capfd.disabled():
        print(f"\nseeds {' '.join(seeds)}: {' '.join(summary)}")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert summary and not summary[0].startswith("0 ")
