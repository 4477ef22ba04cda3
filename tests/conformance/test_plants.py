"""The conformance run sees operators that were broken on purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.plants import PLANTS
from tests.conftest import environment

ROOT = Path(__file__).resolve().parents[2]


# As long as a slow machine takes: what is run is bounded by its number.
PATIENCE = 900


@pytest.mark.nightly
@pytest.mark.timeout(PATIENCE + 60)
def test_a_broken_operator_fails_and_one_left_alone_passes(tmp_path: Path):
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.plants", tmp_path],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    statuses = json.loads(done.stdout.splitlines()[-1])

    said = {plant: (tmp_path / f"{plant}.txt").read_text() for plant in PLANTS}
    wrong = {
        name: f"{statuses[name]}: {said[name]}"
        for name, plant in PLANTS.items()
        if plant.told not in said[name]
        or statuses[name] != (name != "nothing")
        or (name != "nothing" and "failed: 1, " not in said[name])
    }
    assert wrong == {}


def test_what_is_missing_in_ci_is_an_error():
    code = (
        "import importlib.util, sys\n"
        "from tests.conformance import run\n"
        "run.NEEDED += ('no_such_module',)\n"
        "sys.argv[1:] = ['--ops', '^digamma$']\n"
        "sys.exit(run.main())\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "CI": "1"},
        capture_output=True,
        text=True,
    )

    assert done.returncode == 2
    assert "not installed: no_such_module" in done.stderr
