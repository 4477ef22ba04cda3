"""What the flags of the pytest plugin do to a suite: good and bad tests of it."""

import pytest
from _pytest.config.argparsing import Parser

import pytest_npu_dispatch

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


# A race whose values nobody looks at: they differ from run to run.
KNOWN = MAKE + "\n\ndef test_known():\n    race()\n"
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
def suite(tmp_path, python, child_environment):
    """suite(*flags, test_a=text): run pytest, and return outcomes and what it says."""

    def run(*flags, only="", **files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        command = ["-m", "pytest", "-rA", "-p", "no:cacheprovider", "--strict-markers"]
        result = python.run(
            *(*command, *flags, *(["-k", only] if only else [])),
            env=child_environment(TORCH_NPU_SANITIZER="0", NPU_DISPATCH_DEVICES="2"),
            cwd=tmp_path,
        )
        outcomes = {
            line.split(" ")[1].replace(".py::", "::"): line.split(" ")[0]
            for line in result.stdout.splitlines()
            if line.startswith(("PASSED", "FAILED", "ERROR "))
        }
        return outcomes, result.stdout + result.stderr

    return run


def of_file(outcomes, file):
    found = {
        name.partition("::")[2]: outcome
        for name, outcome in outcomes.items()
        if name.startswith(f"{file}::")
    }
    assert found, (file, outcomes)
    return found


def failed(outcomes):
    assert outcomes
    return {name for name, outcome in outcomes.items() if outcome != "PASSED"}


def test_sanitize_fails_the_tests_that_race_and_obeys_markers_and_suppressions(
    suite, tmp_path
):
    (tmp_path / "known").write_text("write/write */test_known.py")
    outcomes, text = suite(
        *("--npu-sanitize", "--npu-suppressions=known"),
        test_suite=SUITE,
        test_hidden=HIDDEN,
        test_known=KNOWN,
        test_zlate=LATE,
    )

    assert of_file(outcomes, "test_hidden") == {
        "test_fixture": "ERROR",
        "test_fine": "PASSED",
        "test_thread": "FAILED",
        "test_swallowed": "FAILED",
        "test_gathered": "FAILED",
        "test_marked": "PASSED",
    }
    raced = of_file(outcomes, "test_suite")
    assert failed(raced) == {"test_unordered", "TestOrder::test_unordered"}
    assert len(raced) == 7
    assert "write/write" in text
    assert "x.mul_(2)" in text
    assert failed(of_file(outcomes, "test_known")) == set()
    # Without --npu-clear-errors, what a test leaves fails the next.
    assert "test_next" in failed(of_file(outcomes, "test_zlate"))


def test_a_bad_file_of_suppressions_is_a_usage_error(suite, tmp_path):
    (tmp_path / "known").write_text("no-such-kind *.py")
    outcomes, text = suite(
        "--npu-sanitize", "--npu-suppressions=known", test_suite=SUITE
    )

    assert not outcomes
    assert "--npu-suppressions: known, line" in text
    assert "Traceback" not in text


@pytest.mark.parametrize("flag", ["--npu-schedules=x", "--npu-seed=-2"])
def test_a_bad_number_is_a_usage_error(flag):
    parser = Parser(_ispytest=True)
    pytest_npu_dispatch.pytest_addoption(parser)

    with pytest.raises(pytest.UsageError, match=r"expected 0, 1, 2 \.\.\., found"):
        parser.parse([flag])


@pytest.mark.parametrize(
    ("flag", "needs"),
    [
        ("--npu-seed=0", "--npu-schedules"),
        ("--npu-length=8", "--npu-schedules"),
        ("--npu-suppressions=known", "--npu-sanitize"),
    ],
)
def test_an_option_without_the_one_that_it_is_about_is_a_usage_error(
    suite, flag, needs
):
    outcomes, text = suite(flag, test_suite=SUITE)

    assert not outcomes
    assert f"{flag.partition('=')[0]} has an effect only with {needs}" in text


def test_schedules_multiply_tests_and_name_their_seeds(suite):
    flags = ("--npu-schedules=12", "--npu-seed=3")
    outcomes, _ = suite(*flags, only="ordered", test_suite=SUITE)
    outcomes = of_file(outcomes, "test_suite")

    assert len(outcomes) == 36
    assert {name.partition("[")[2] for name in outcomes} == {
        f"npu-seed={seed}]" for seed in range(3, 15)
    }
    names = {name.partition("[")[0] for name in failed(outcomes)}
    assert names == {"test_unordered", "TestOrder::test_unordered"}


def test_what_a_schedule_error_prints_replays(suite, python):
    printed = python(EXPLORED, TORCH_NPU_SANITIZER="").stdout.splitlines()
    flags = {line.split(" ")[0]: line.split(" ")[1:] for line in printed}
    assert len(flags) > 5

    for number in list(flags)[:2]:
        outcomes, _ = suite(*flags[number], test_suite=EXPLORED)
        wanted = {f"test_suite::test_program[npu-seed={number}]"}
        assert failed(outcomes) == wanted


def test_sync_error_fails_the_test_with_a_hidden_wait(suite):
    outcomes, text = suite("--npu-sync=error", only="wait", test_suite=SUITE)

    assert failed(outcomes) == {"test_suite::test_with_hidden_wait"}
    assert len(outcomes) == 3
    assert "HostSyncError" in text
    assert "assert x.sum().item() == 5000" in text


def test_sync_warns_of_waits_and_errors_that_a_test_leaves_are_cleared(suite):
    flags = ("--npu-sync=warn", "--npu-clear-errors")
    outcomes, text = suite(
        *flags,
        only="wait or known or late or next",
        test_alate=LATE,
        test_known=KNOWN,
        test_suite=SUITE,
    )

    assert len(outcomes) == 7
    assert not failed(outcomes), "races are not looked for"
    assert "HostSyncWarning" in text
    assert "in test_with_hidden_wait" in text
    assert "in test_with_allowed_wait" not in text
    told = text.split("tests that left errors of their tasks")[1]
    for device in "npu:0", "npu:1":
        assert f"test_alate.py::test_late: {device}: " in told
    assert "test_next: " not in told
