"""tools/steps.py: what came of each step, whatever came of those before it."""

import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from npu_dispatch.observe.segment.system import has_ended

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import pages
import steps

PASSES = "print('= 3 passed in 0.01s =')"
FAILS = "print('why it failed'); raise SystemExit(3)"
HANGS = ("sh", "-c", "sleep 600 & echo $$ $!; wait")


def toy(name: str, code: str) -> steps.Step:
    return steps.Step(name, (sys.executable, "-c", code), limit_s=60)


def run(tmp_path: Path, *chosen: steps.Step, is_night: bool = True) -> steps.Run:
    return steps.Run("nightly" if is_night else "check", chosen, is_night, tmp_path)


def kept(tmp_path: Path, name: str = "nightly") -> dict[str, object]:
    return json.loads((tmp_path / f"{name}.json").read_text())


def test_at_night_every_step_runs_and_the_worst_status_is_told(tmp_path, capsys):
    hangs = steps.Step("b", HANGS, limit_s=1)

    status = run(tmp_path, toy("a", FAILS), hangs, toy("c", PASSES))()

    assert status == steps.OUT_OF_TIME
    told = kept(tmp_path)
    assert told["not_run"] == []
    assert [(s["step"], s["result"], s["figure"]) for s in told["steps"]] == [
        ("a", "failed, exit status 3", ""),
        ("b", "out of time", ""),
        ("c", "passed", "pytest: 3 passed"),
    ]
    shown = capsys.readouterr().out
    assert "the end of" in shown
    assert "why it failed" in shown
    last = shown.splitlines()[-5:]
    assert [line.split()[0] for line in last] == ["step", "a", "b", "c", "all"]
    assert last[3].split()[2:] == ["passed", "pytest:", "3", "passed"]


def test_all_that_a_step_out_of_time_started_is_gone(tmp_path, monkeypatch):
    log = tmp_path / "nightly/b.log"

    def pids() -> list[int]:
        return [int(pid) for pid in log.read_text().split()] if log.exists() else []

    # Its time is over once it has told of both processes.
    clock = vars(time) | {"monotonic": lambda: 10.0 * len(pids())}
    monkeypatch.setattr(steps, "time", SimpleNamespace(**clock))

    run(tmp_path, steps.Step("b", HANGS, limit_s=2))()

    # A killed process is gone when the kernel comes to it.
    while not all(has_ended(pid) for pid in pids()):
        pass
    assert len(pids()) == 2


def test_a_change_ends_at_the_first_failure_and_shows_all_output(tmp_path, capfd):
    chosen = toy("a", PASSES), toy("b", FAILS), toy("c", PASSES)

    status = run(tmp_path, *chosen, is_night=False)()

    assert status == 3
    assert kept(tmp_path, "check")["not_run"] == ["c"]
    shown = capfd.readouterr().out
    assert "= 3 passed in 0.01s =\n" in shown
    assert "why it failed" in shown
    assert shown.splitlines()[-2].split()[0] == "b"


def test_the_output_of_a_step_that_ends_at_once_is_shown(tmp_path, capfd):
    at_once = steps.Step("a", ("echo", "that was all"), limit_s=60)

    assert run(tmp_path, at_once, is_night=False)() == 0
    assert "that was all\n" in capfd.readouterr().out


def test_a_night_that_is_over_says_which_steps_had_no_time(tmp_path):
    night = run(tmp_path, toy("a", PASSES))
    night.whole_s = 0

    assert night() == steps.OUT_OF_TIME
    assert kept(tmp_path)["steps"][0]["result"] == "out of time"


def test_a_night_that_is_cut_off_leaves_its_part(tmp_path, capsys):
    night = run(tmp_path, toy("a", PASSES), toy("b", PASSES), toy("c", PASSES))
    find = night.find

    def cut(step, log, began):
        if step == "b":
            raise KeyboardInterrupt
        return find(step, log, began)

    night.find = cut
    with pytest.raises(KeyboardInterrupt):
        night()

    assert [step["step"] for step in kept(tmp_path)["steps"]] == ["a"]
    assert kept(tmp_path)["not_run"] == ["b", "c"]
    assert capsys.readouterr().out.splitlines()[-2].startswith("a ")


def test_a_night_that_is_resumed_runs_what_has_not_passed(tmp_path, capsys):
    left = [toy("a", PASSES), toy("b", FAILS), toy("c", PASSES)]
    assert run(tmp_path, *left[:2])() == 3
    told = kept(tmp_path)
    took = told["steps"][0]["seconds"]

    night = run(tmp_path, left[0], toy("b", PASSES), left[2])
    whole_s = night.whole_s
    night.resume(told)

    assert night.whole_s == whole_s - took
    assert night() == 0
    steps_told = [(s["step"], s["result"]) for s in kept(tmp_path)["steps"]]
    assert steps_told == [(name, "passed") for name in "abc"]
    assert kept(tmp_path)["steps"][0]["seconds"] == took
    shown = capsys.readouterr().out
    assert [shown.count(f"\n== {name}\n") for name in "abc"] == [1, 2, 1]


def test_only_a_run_of_the_same_commit_is_resumed(tmp_path):
    path = tmp_path / "nightly.json"
    with pytest.raises(SystemExit, match="there is none"):
        steps.cut_off(path)

    path.write_text(json.dumps({"commit": "0", "steps": []}))
    with pytest.raises(SystemExit, match="it has 0"):
        steps.cut_off(path)

    path.write_text(json.dumps({"commit": steps.commit(), "steps": []}))
    assert steps.cut_off(path)["steps"] == []
    assert steps.moment("2026-11-30 12:00") == 1_796_040_000.0


def test_a_step_that_dies_of_a_signal_has_the_status_that_a_shell_gives(tmp_path):
    dies = toy("a", "import os; os.kill(os.getpid(), 11)")

    assert run(tmp_path, dies)() == 128 + 11


def test_the_makefiles_steps_come_after_what_they_all_need(monkeypatch):
    # As from a shell: not with what a make above this test says.
    for name in ("NIGHTLY", "MAKEFLAGS", "MAKELEVEL"):
        monkeypatch.delenv(name, raising=False)

    change, night = steps.make_steps(), steps.make_steps("NIGHTLY=1")

    names = [step.name for step in change]
    first = ["tools core", "build lint"]
    assert names == [*first, "test", "test-sanitizers", "conformance"]
    assert change[2].command == ("make", "test")
    assert night[2].command == ("make", "test", "NIGHTLY=1")
    assert {*names, "mutants", *steps.LIMITS} <= {step.name for step in night}
    assert {step.name for step in night} <= pages.CONTENTS.keys()


def test_as_many_nights_run_each_of_the_steps_in_turn_and_say_which(capsys):
    night = [toy(name, PASSES) for name in ("test", *steps.IN_TURN, "mutants")]
    noon = 1_800_000_000 // steps.DAY_S * steps.DAY_S + steps.DAY_S / 2

    days = range(len(steps.IN_TURN))
    runs = [steps.of_one_night(night, noon + steps.DAY_S * day) for day in days]

    named = [[step.name for step in run] for run in runs]
    turns = [turn for _, turn, _ in named]
    assert sorted(turns) == sorted(steps.IN_TURN)
    assert named == [["test", turn, "mutants"] for turn in turns]
    said = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[1] for line in said] == turns
