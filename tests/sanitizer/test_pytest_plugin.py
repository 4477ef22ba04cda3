"""What the flags of the pytest plugin do to a suite: good and bad tests of it."""

from __future__ import annotations

from pathlib import Path

import pytest

# A tensor and a stream, and a race between two.
MAKE = """
import asyncio
import threading
import unittest

import pytest
import torch


def make():
    s = torch.npu.Stream()
    x = torch.zeros(100, device="npu")
    torch.npu.synchronize()
    return s, x


def race():
    s, x = make()
    x.add_(1)
    with torch.npu.stream(s):
        x.mul_(2)
    torch.npu.synchronize()
    return x
"""
SUITE = (
    MAKE
    + '''
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
    assert race().cpu()[0] == 2


@pytest.mark.npu_races("to see that the marker is obeyed")
def test_marked():
    race()


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


class TestOrder(unittest.TestCase):
    def test_unordered(self):
        self.assertEqual(race()[0].item(), 2)
'''
)


# Races whose exception the test does not see.
HIDDEN = (
    MAKE
    + """
@pytest.fixture
def racy():
    race()


def test_fixture(racy):
    pass


def test_fine():
    torch.npu.synchronize()


def test_thread():
    thread = threading.Thread(target=race)
    thread.start()
    thread.join()


def test_swallowed():
    try:
        race()
    except Exception:
        pass


def test_gathered():
    async def main():
        await asyncio.gather(asyncio.to_thread(race), return_exceptions=True)

    asyncio.run(main())


@pytest.mark.npu_races("with its fixtures")
def test_marked(racy):
    pass
"""
)

EXPLORED = """
import torch

from npu_dispatch.testing import ScheduleError, explore


def program():
    p = torch.zeros(100).pin_memory()
    x = torch.ones(100, device="npu")
    for _ in range(6):
        x = x + 1
    p.copy_(x, non_blocking=True)
    y = p.clone()
    torch.npu.synchronize()
    return y


def test_program():
    assert program()[0] == 7


if __name__ == "__main__":
    for seed in range(1, 25):
        try:
            explore(program, schedules=1, seed=seed)
        except ScheduleError as error:
            print(seed, str(error).partition("pytest ")[2])
"""


@pytest.fixture
def suite(tmp_path: Path, python, child_environment):
    def run(
        *flags: str, only: str = "", text: str = SUITE
    ) -> tuple[dict[str, str], str]:
        (tmp_path / "test_suite.py").write_text(text)
        command = ["-m", "pytest", "-rA", "-p", "no:cacheprovider", "--strict-markers"]
        result = python.run(
            *(*command, *flags, *(["-k", only] if only else [])),
            env=child_environment(TORCH_NPU_SANITIZER="0", NPU_DISPATCH_DEVICES="2"),
            cwd=tmp_path,
        )
        outcomes = {
            line.split("::", 1)[1].split(" ")[0]: line.split(" ")[0]
            for line in result.stdout.splitlines()
            if line.startswith(("PASSED", "FAILED", "ERROR"))
        }
        return outcomes, result.stdout + result.stderr

    return run


def failed(outcomes: dict[str, str]) -> set[str]:
    assert outcomes
    return {name for name, outcome in outcomes.items() if outcome != "PASSED"}


def test_sanitize_fails_the_test_that_races_and_obeys_the_marker(suite):
    outcomes, text = suite("--npu-sanitize")

    assert failed(outcomes) == {"test_unordered", "TestOrder::test_unordered"}
    assert len(outcomes) == 7
    assert "write/write" in text
    assert "x.mul_(2)" in text


def test_sanitize_fails_tests_that_hide_the_exception_and_watches_fixtures(suite):
    outcomes, _ = suite("--npu-sanitize", text=HIDDEN)

    assert outcomes == {
        "test_fixture": "ERROR",
        "test_fine": "PASSED",
        "test_thread": "FAILED",
        "test_swallowed": "FAILED",
        "test_gathered": "FAILED",
        "test_marked": "PASSED",
    }


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (
            ["--npu-sanitize", "--npu-suppressions=known"],
            "--npu-suppressions: known, line",
        ),
        (["--npu-schedules=x"], "expected 0, 1, 2 ..., found"),
        (["--npu-seed=-2"], "expected 0, 1, 2 ..., found"),
    ],
)
def test_bad_values_of_flags_are_a_usage_error(suite, tmp_path: Path, flags, said):
    (tmp_path / "known").write_text("no-such-kind *.py")
    outcomes, text = suite(*flags)

    assert not outcomes
    assert said in text
    assert "Traceback" not in text


def test_suppressions_are_obeyed(suite, tmp_path: Path):
    (tmp_path / "known").write_text("write/write */test_suite.py")
    outcomes, text = suite("--npu-sanitize", "--npu-suppressions=known", only="ordered")

    assert "NPUSanitizerErrors" not in text
    assert len(outcomes) == 3


def test_schedules_multiply_tests_and_name_the_seed_that_replays(suite):
    flags = ("--npu-schedules=12", "--npu-seed=3")
    outcomes, _ = suite(*flags, only="ordered")
    bad = failed(outcomes)

    assert len(outcomes) == 36
    names = {name.partition("[npu-seed=")[0] for name in bad}
    assert names == {"test_unordered", "TestOrder::test_unordered"}
    seed = min(bad).split("=")[1].rstrip("]")
    name = min(bad).partition("[")[0]
    outcomes, _ = suite("--npu-schedules=1", f"--npu-seed={seed}", only="unordered")
    assert f"{name}[npu-seed={seed}]" in failed(outcomes)


def test_what_a_schedule_error_prints_replays(suite, python, tmp_path: Path):
    """One of the seeds that need the length, and one that does not."""
    (tmp_path / "test_suite.py").write_text(EXPLORED)
    printed = python(EXPLORED, TORCH_NPU_SANITIZER="").stdout.splitlines()
    flags = {line.split(" ")[0]: line.split(" ")[1:] for line in printed}
    assert len(flags) > 5

    for number in list(flags)[:4]:
        outcomes, _ = suite(*flags[number], text=EXPLORED)
        assert failed(outcomes) == {f"test_program[npu-seed={number}]"}


def test_sync_error_fails_the_test_with_a_hidden_wait(suite):
    outcomes, text = suite("--npu-sync=error", only="wait")

    assert failed(outcomes) == {"test_with_hidden_wait"}
    assert len(outcomes) == 3
    assert "HostSyncError" in text
    assert "assert x.sum().item() == 5000" in text


def test_sync_warn_lets_it_pass_and_says_where(suite):
    outcomes, text = suite("--npu-sync=warn", only="wait or ordered")

    assert len(outcomes) == 6 and not failed(outcomes), "races are not looked for"
    assert "HostSyncWarning" in text
    assert "in test_with_hidden_wait" in text
    assert "in test_with_allowed_wait" not in text


LATE = """
import torch


def test_late():
    rows = [(torch.zeros(3, device=d), torch.tensor([7], device=d)) for d in DEVICES]
    torch.npu.synchronize(0)
    torch.npu.synchronize(1)
    for x, out_of_range in rows:
        torch.index_select(x, 0, out_of_range)


DEVICES = "npu:0", "npu:1"


def test_next():
    assert torch.ones(2, device="npu").sum().item() == 2


def test_next_on_the_other_device():
    assert torch.ones(2, device="npu:1").sum().item() == 2
"""


def test_errors_that_a_test_leaves_fail_the_next_one_unless_they_are_cleared(suite):
    without, _ = suite(text=LATE)
    cleared, text = suite("--npu-clear-errors", text=LATE)

    assert "test_next" in failed(without)
    assert failed(cleared) == set()
    told = text.split("tests that left errors of their tasks")[1]
    for device in "npu:0", "npu:1":
        assert f"test_suite.py::test_late: {device}: " in told
    assert "test_next: " not in told
