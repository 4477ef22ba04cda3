"""The conformance run sees operators that were broken on purpose."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import environment

ROOT = Path(__file__).resolve().parents[2]

# What the run says of each plant; the last line of a run with a failure.
TOLD = {
    "wrong_value": "digamma float32 fwd: [fwd] result: Tensor-likes are not close",
    "wrong_dtype": "result: dtype torch.float64 instead of torch.float32",
    "wrong_shape": "result: shape (1, ",
    "on_cpu": "of the results lies on cpu",
    "view_of_input": "trunc float32 fwd: [fwd] result: whether it is the input itself",
    "alters_input": "digamma float32 fwd: [fwd] input 0 afterwards: Tensor-likes",
    "in_place_writes_nothing": "digamma float32 inplace: [inplace] result: ",
    "out_writes_nothing": "digamma float32 out: [out] result: Tensor-likes",
    "wrong_backward": "digamma float32 bwd: [bwd] gradient[0]: Tensor-likes",
    "wrong_strides": "triu float32 fwd: [fwd] strides of tensor 0",
    "no_error": "gather any wrong_calls: [wrong_calls] no error instead of cpu's",
    "not_found_again": "float32 again: [again] not found again: 1 of its launches",
    "crash": "digamma all crash: worker died: SIGSEGV; at float32 fwd",
    "hang": "digamma all crash: no end within 5 s; at float32 fwd",
    "no_samples": "nothing was compared: digamma",
    "samples_raise": "nothing was compared: digamma",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[int, str]]:
    """Return {plant: (exit status, what its run printed)}."""
    folder = tmp_path_factory.mktemp("plants")
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.plants", folder],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=170,
    )
    assert done.returncode == 0, done.stderr
    statuses = json.loads(done.stdout.splitlines()[-1])
    return {
        plant: (status, (folder / f"{plant}.txt").read_text())
        for plant, status in statuses.items()
    }


def test_an_operator_left_alone_passes(runs):
    status, text = runs["nothing"]

    assert status == 0, text
    assert text.splitlines()[-1] == "1 operators checked, 0 failed"


@pytest.mark.parametrize("plant", TOLD)
def test_a_broken_operator_fails(runs, plant):
    status, text = runs[plant]

    assert TOLD[plant] in text, text
    assert status == 1
    assert text.splitlines()[-1].endswith(" operators checked, 1 failed")


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
