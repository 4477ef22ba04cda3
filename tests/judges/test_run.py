"""Of small and wicked suites each test is told of, and what fails on npu alone."""

import os
import sys
from pathlib import Path

import pytest

from tests.judges import run, shards, suites, told

# Eight runs of pytest, on a slow machine, too.
pytestmark = pytest.mark.timeout(900)

WICKED = """
import os, pytest, torch
def test_right(): pass
def test_wrong(): assert 1 == 2
@pytest.mark.skip(reason="it has no fins")
def test_fish(): pass
@pytest.mark.xfail
def test_expected(): assert False
def test_dies(): os.kill(os.getpid(), 11)
def test_after_the_dead(): pass
def test_told_version(): assert torch.__version__ == os.environ["JUDGES_SAID"]
"""


@pytest.fixture
def wicked(tmp_path: Path) -> shards.Shard:
    (tmp_path / "test_wicked.py").write_text(WICKED)
    (tmp_path / "test_broken.py").write_text("import no_such_module_anywhere")
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    arguments = ("-c", "pytest.ini", "--continue-on-collection-errors", ".")
    return shards.Shard("wicked", arguments, tmp_path, {"JUDGES_SAID": "2.1.0"})


def outcomes(shard: shards.Shard, log: Path) -> dict[str, str]:
    found = shards.run(Path(sys.executable), shard, log)
    return {name.rpartition("::")[2]: said.outcome for name, said in found.items()}


def test_every_test_has_an_outcome_whatever_the_others_do(
    wicked: shards.Shard, forked: None, tmp_path: Path
) -> None:
    assert outcomes(wicked, tmp_path / "log.jsonl") == {
        "test_broken.py": "failed",
        "test_right": "passed",
        "test_wrong": "failed",
        "test_fish": "skipped",
        "test_expected": "skipped",
        "test_dies": "crashed",
        "test_after_the_dead": "passed",
        "test_told_version": "passed",
    }


def test_an_interrupted_run_goes_on_with_the_test_that_it_was_in(
    wicked: shards.Shard, forked: None, tmp_path: Path
) -> None:
    log = tmp_path / "log.jsonl"
    log.write_text(
        '{"test": "test_wicked.py::test_wrong", "outcome": "passed"}\n'
        '{"test": "test_wicked.py::test_right"}\n'
    )

    found = outcomes(wicked, log)

    assert found["test_right"] == "passed"  # it runs again
    assert found["test_wrong"] == "passed"  # which was told then
    # And what has come to its end is not started: there is no such interpreter.
    assert shards.run(tmp_path / "python", wicked, log).keys() >= {
        "test_wicked.py::test_right"
    }


def test_parts_of_a_suite_are_the_suite(tmp_path: Path) -> None:
    names = [f"test_{n}" for n in range(100)]
    parts = [{n for n in names if told.is_part(n, f"{k}/3")} for k in range(3)]
    assert set.union(*parts) == set(names)
    assert sum(map(len, parts)) == len(names)
    assert all(len(part) > 20 for part in parts)


def test_only_what_is_named_runs_in_an_interpreter_of_its_own(
    wicked: shards.Shard, tmp_path: Path
) -> None:
    names = tmp_path / "names"
    names.write_text("test_wicked.py::test_wrong\n")
    chosen = shards.Shard(
        wicked.name,
        (*wicked.arguments[:2], "test_wicked.py"),
        wicked.folder,
        {**wicked.env, "JUDGES_ONLY": os.fspath(names)},
    )
    assert outcomes(chosen, tmp_path / "log.jsonl") == {"test_wrong": "failed"}


@pytest.mark.nightly  # a minute of silence
def test_a_silent_test_is_killed_and_the_next_one_runs(
    wicked: shards.Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "PATIENCE_S", 60.0)
    (tmp_path / "test_wicked.py").write_text(
        "import threading\n"
        "def test_silent(): threading.Event().wait()\n"
        "def test_after_it(): pass\n"
    )
    (tmp_path / "test_broken.py").unlink()
    found = outcomes(wicked, tmp_path / "log.jsonl")
    assert found == {"test_silent": "hung", "test_after_it": "passed"}


SUITE = """
import os, pytest, torch
@pytest.fixture
def device(): return "cpu"  # what runs here has no other device
ON_NPU = os.environ["SUITES_DEVICE"] == "npu"
def test_right(): pass
def test_wrong_on_npu(): assert not ON_NPU
def test_wrong_on_both(): assert False
def test_wrong_on_cpu_alone(): assert ON_NPU
def test_dies_on_npu():
    if ON_NPU: os.kill(os.getpid(), 9)
def test_asks_less_of_cpu(device):
    if not ON_NPU and torch.device(device).type == "cpu": return
    assert torch.ones(2, device=device).sum().item() == 3
def test_skips_cpu(device):
    if not ON_NPU and device == "cpu": pytest.skip("not on cpu")
    assert (torch.ones(2).to(device) + 1).sum().item() == 3
def test_says_something_else_in_disguise(device):
    if not ON_NPU and torch.device(device).type == "cpu": return
    assert ON_NPU, "it is in disguise"
    assert False, "it is on npu"
def test_takes_no_disguise(device):
    torch.ops.aten.empty.memory_format([2], device=torch.device(device))
    assert not ON_NPU
class TestOfClass:
    device_type = "cpu"
    def test_asks_less_of_cpu_by_class(self):
        if not ON_NPU and self.device_type == "cpu": return
        assert False
    def test_asks_less_of_cpu_by_what_was_made(self, made={"device": "cpu"}):
        if not ON_NPU and made["device"] == "cpu": return
        assert False
done = []
def test_leaves_something(): done.append(1)
def test_wrong_on_both_behind_another(): assert not done
def test_wrong_on_npu_behind_another(): assert not (done and ON_NPU)
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> suites.Suite:
    (tmp_path / "test_of_others.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(suites, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(suites, "OUT", tmp_path)
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")

    def of(device: str) -> list[shards.Shard]:
        arguments = ("-c", "pytest.ini", "test_of_others.py")
        env = {"SUITES_DEVICE": device}
        return [shards.Shard("others", arguments, tmp_path, env)]

    return suites.Suite("others", "1", "here", lambda: None, of, lambda name: name)


def test_what_is_counted_fails_on_npu_alone(
    suite: suites.Suite, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PARTS", 1)
    found = run.judged(suite, [], run.Work(0, 1))
    counts = found["counts"]
    failed = run.failures(found)
    assert {
        test.rpartition("::")[2]: outcome for test, (outcome, _) in failed.items()
    } == {
        "test_wrong_on_npu": "failed",
        "test_dies_on_npu": "crashed",
        "test_says_something_else_in_disguise": "failed",
        "test_takes_no_disguise": "failed",
        "test_wrong_on_npu_behind_another": "failed",
    }
    assert counts["not right on cpu either"] == 6
    assert counts["passed"] == 3 and sum(counts.values()) == 14
    assert run.unknown(found, {"others": {"parts": {"0": found}}}) == {}
    assert run.unknown(found, {}) == failed
