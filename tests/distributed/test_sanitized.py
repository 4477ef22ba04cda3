"""The race sanitizer reports nothing in what torch builds on collectives."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRAINING = (
    "test_data_parallel.py",
    "test_fsdp.py",
    "test_parallelism.py",
    "test_collectives.py",
    "test_streams.py",
)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", TRAINING)
def test_the_tests_of_training_pass_under_the_sanitizer(file: str):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not nightly"]
    done = subprocess.run(
        [*command, str(HERE / file)],
        env=os.environ | {"NPU_TEST_SANITIZE_RANKS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-5000:]
