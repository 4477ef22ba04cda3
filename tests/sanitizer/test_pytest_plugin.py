"""What the flags of the pytest plugin do to a suite: good and bad tests of it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SUITE = '''
import pytest
import torch


def make():
    s = torch.npu.Stream()
    x = torch.zeros(100, device="npu")
    torch.npu.synchronize()
    return s, x


def test_ordered():
    s, x = make()
    x.add_(1)
    s.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(s):
        x.mul_(2)
    s.synchronize()
    assert x.cpu()[0] == 2


def test_unordered():
    """Right only in program order."""
    s, x = make()
    x.add_(1)
    with torch.npu.stream(s):
        x.mul_(2)
    torch.npu.synchronize()
    assert x.cpu()[0] == 2


@pytest.mark.npu_races("to see that the marker is obeyed")
def test_marked():
    s, x = make()
    x.add_(1)
    with torch.npu.stream(s):
        x.mul_(2)
    torch.npu.synchronize()


def test_without_waits():
    s, x = make()
    x.add_(1)


def test_with_allowed_wait():
    s, x = make()
    with torch.npu.allow_sync("the value is asserted"):
        assert x.sum().item() == 0


def test_with_hidden_wait():
    s, x = make()
    for _ in range(50):
        x.add_(1)
    assert x.sum().item() == 5000
'''


@pytest.fixture
def suite(tmp_path: Path, child_environment):
    (tmp_path / "test_suite.py").write_text(SUITE)

    def run(*flags: str, only: str = "") -> tuple[dict[str, str], str]:
        command = [sys.executable, "-m", "pytest", "-rA", "-p", "no:cacheprovider"]
        result = subprocess.run(
            [*command, "--strict-markers", *flags, *(["-k", only] if only else [])],
            env=child_environment(TORCH_NPU_SANITIZER="0"),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=120,
        )
        outcomes = {
            line.split("::")[1].split(" ")[0]: line.split(" ")[0]
            for line in result.stdout.splitlines()
            if line.startswith(("PASSED", "FAILED", "ERROR"))
        }
        return outcomes, result.stdout

    return run


def failed(outcomes: dict[str, str]) -> set[str]:
    assert outcomes
    return {name for name, outcome in outcomes.items() if outcome != "PASSED"}


def test_sanitize_fails_the_test_that_races_and_obeys_the_marker(suite):
    outcomes, text = suite("--npu-sanitize")

    assert failed(outcomes) == {"test_unordered"}
    assert len(outcomes) == 6
    assert "write/write" in text
    assert "x.mul_(2)" in text


def test_suppressions_are_obeyed(suite, tmp_path: Path):
    (tmp_path / "known").write_text("write/write */test_suite.py")
    outcomes, text = suite("--npu-sanitize", "--npu-suppressions=known", only="ordered")

    assert "NPUSanitizerErrors" not in text
    assert set(outcomes) == {"test_ordered", "test_unordered"}


def test_schedules_multiply_tests_and_name_the_seed_that_replays(suite):
    flags = ("--npu-schedules=12", "--npu-seed=3")
    outcomes, _ = suite(*flags, only="ordered")
    bad = failed(outcomes)

    assert len(outcomes) == 24
    assert bad
    assert all(name.startswith("test_unordered[npu-seed=") for name in bad)
    seed = min(bad).split("=")[1].rstrip("]")
    outcomes, _ = suite("--npu-schedules=1", f"--npu-seed={seed}", only="unordered")
    assert failed(outcomes) == {f"test_unordered[npu-seed={seed}]"}


def test_sync_error_fails_the_test_with_a_hidden_wait(suite):
    outcomes, text = suite("--npu-sync=error", only="wait")

    assert failed(outcomes) == {"test_with_hidden_wait"}
    assert len(outcomes) == 3
    assert "HostSyncError" in text
    assert "assert x.sum().item() == 5000" in text


def test_sync_warn_lets_it_pass_and_says_where(suite):
    outcomes, text = suite("--npu-sync=warn", only="wait")

    assert not failed(outcomes)
    assert "HostSyncWarning" in text
    assert "in test_with_hidden_wait" in text
    assert "in test_with_allowed_wait" not in text


def test_no_flag_changes_nothing(suite):
    outcomes, text = suite(only="not unordered")

    assert not failed(outcomes)
    assert "HostSyncWarning" not in text
