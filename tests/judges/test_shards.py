"""A suite of another, small and wicked: each of its tests is told of."""

import os
import sys
from pathlib import Path

import pytest

from tests.judges import shards, told

# Two runs of pytest, on a slow machine, too.
pytestmark = pytest.mark.timeout(900)

SUITE = """
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
    (tmp_path / "test_wicked.py").write_text(SUITE)
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
