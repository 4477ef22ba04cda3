"""Runs a foreign suite's tests to the last one, whatever dies or hangs on the way.

A shard is one call of pytest. Where its process ends in the middle of a test, that
test crashed; where a test says nothing for PATIENCE_S, it hangs and is killed. The
others then go on in a new process.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.judges import told

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
from process_group import started

HERE = Path(__file__).resolve().parent
PATIENCE_S = float(os.environ.get("NPU_JUDGES_PATIENCE_S", "180"))
# Until a suite has collected its tests, which some make from all operators.
START_S = 3600.0
LOOK_S = 0.2
# Processes of a shard: after so many deaths, what is left is given up.
TRIES = 60


@dataclass(frozen=True)
class Shard:
    """A call of pytest: its name, its arguments, where and with what it runs."""

    name: str
    arguments: tuple[str, ...]
    folder: Path
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What came of a test: passed, failed, skipped, crashed or hung; and why."""

    outcome: str
    message: str = ""


def _ended(process: subprocess.Popen[bytes], log: Path) -> bool:
    """Wait for a process; return whether it ended before it said nothing for long."""
    heard, size, before = time.monotonic(), log.stat().st_size, log.stat().st_size
    while process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(LOOK_S)
        if (now := log.stat().st_size) != size:
            heard, size = time.monotonic(), now
        if time.monotonic() - heard > (PATIENCE_S if size > before else START_S):
            return False
    return True


def _is_finished(log: Path) -> bool:
    lines = log.read_text().splitlines()
    return bool(lines) and bool(json.loads(lines[-1]).get("finished"))


def _forget_interrupted(log: Path) -> None:
    """Drop tests that had not ended when the run itself was interrupted."""
    begun = {name for name, last in told.read(log).items() if "outcome" not in last}
    lines = log.read_text().splitlines()
    kept = [line for line in lines if json.loads(line).get("test") not in begun]
    log.write_text("".join(f"{line}\n" for line in kept))


def _once(python: Path, shard: Shard, log: Path) -> str:
    """Run what is left of a shard; return "", or how the process ended early."""
    env = {**os.environ, **shard.env, "JUDGES_LOG": str(log)}
    env["PYTHONPATH"] = os.pathsep.join([str(HERE), env.get("PYTHONPATH", "")])
    command = [str(python), "-m", "pytest", "-p", "recorder", "-p", "no:cacheprovider"]
    command += ["-q", "--tb=short", "--disable-warnings", *shard.arguments]
    with (
        log.with_suffix(".out").open("ab") as output,
        started(command, output, cwd=shard.folder, env=env) as process,
    ):
        in_time = _ended(process, log)
    if not in_time:
        return f"hung: no word for {PATIENCE_S:.0f} s"
    if _is_finished(log):
        return ""
    return f"crashed: the process ended with {process.returncode}"


def _outcomes(log: Path) -> dict[str, Outcome]:
    return {
        name: Outcome(line["outcome"], line.get("message", ""))
        for name, line in told.read(log).items()
    }


def run(python: Path, shard: Shard, log: Path) -> dict[str, Outcome]:
    """Run a shard; return what came of each test that it collected."""
    log.parent.mkdir(parents=True, exist_ok=True)
    log.touch()
    _forget_interrupted(log)
    # An interrupted run may have come to this shard's end; of tests that are named,
    # others may be asked for now.
    if _is_finished(log) and "JUDGES_ONLY" not in shard.env:
        return _outcomes(log)
    for _ in range(TRIES):
        early = _once(python, shard, log)
        if not early:
            break
        kind, _, why = early.partition(": ")
        lines = told.read(log).items()
        begun = [name for name, line in lines if "outcome" not in line]
        if not begun:  # it died between tests, or before the first
            begun = [f"{shard.name}: between tests"]
        with log.open("a") as file:
            for name in begun:
                line = {"test": name, "outcome": kind, "message": why}
                file.write(json.dumps(line) + "\n")
        if begun[0].startswith(f"{shard.name}:"):
            break
    return _outcomes(log)
