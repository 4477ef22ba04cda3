"""Correct programs give no report: the examples, and suites that use streams.

`make test-sanitized` is the same for everything; this is the part that takes
seconds.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = [
    ("train_gpt.py", "--device", "npu", "--size", "tiny", "--steps", "2"),
    ("train_digits.py", "--device", "npu", "--epochs", "1"),
    ("graph_serve.py", "--requests", "10"),
    ("demo.py", "--steps", "2"),
]
SUITES = (
    "unit/test_streams.py",
    "unit/test_events.py",
    "aio",
    "graphs/test_streams.py",
    "stress",
    "trace/test_ranges.py",
    "ecosystem/test_custom_ops.py",
    "ecosystem/test_foreign_work.py",
    "ecosystem/test_nested.py",
)


@pytest.fixture
def sanitized(tmp_path: Path, child_environment):
    def run(*command: str) -> str:
        result = subprocess.run(
            [sys.executable, *command],
            env=child_environment(TORCH_NPU_SANITIZER="1"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=170,
        )
        assert "npu sanitizer:" not in result.stdout + result.stderr
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


@pytest.mark.parametrize("command", EXAMPLES, ids=lambda command: command[0])
def test_an_example_gives_no_report(sanitized, command: tuple[str, ...]):
    script, *arguments = command

    sanitized(str(ROOT / "examples" / script), *arguments)


@pytest.mark.parametrize("suite", SUITES)
def test_a_suite_gives_no_report(sanitized, suite: str):
    out = sanitized(
        *("-m", "pytest", "-q", "--npu-sanitize", "-p", "no:cacheprovider"),
        *("--rootdir", str(ROOT), "-c", str(ROOT / "pyproject.toml")),
        str(ROOT / "tests" / suite),
    )

    assert " passed" in out
