"""Makes each allocation of a program fail that has run before, in one process.

`python -m tests.torture.warm_faults --seconds 60`; prints JSON. faults.py fails
calls of programs that begin cold, one process for each; here a case costs
milliseconds, so that all of them come to their turn: each `operator new` of the
extension, in order from one that is drawn. After each: the right result or a typed
error; then every stream is usable, and now and then the program works.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.support import preload
from tests.torture import part
from tests.torture.faults import SOURCE, Calls
from tests.torture.part import Told

# A case takes milliseconds; the machine may be busy.
PATIENCE_S = float(os.environ.get("NPU_TORTURE_PATIENCE_S", "40"))


def outcome(calls: Calls, n: int, wanted: Any) -> dict[str, Any]:
    """Fail the n-th allocation of a warm program; return what came of it."""
    import torch

    from tests.torture import victims

    calls.arm("new", n)
    found = victims.outcome(wanted)
    calls.disarm()
    told: dict[str, Any] = {"n": n, "failed": calls.failed, **found}
    if "wrong" in found:
        return {**told, "bad": f"wrong: {found['wrong']}"}
    if "raised" in found and not found["line"]:
        return {**told, "bad": f"raised at no line: {found}"}
    try:
        victims.clear()
        torch.npu.synchronize()
    except Exception as error:
        return {**told, "bad": f"the next wait raised {error!r}, after {found}"}
    if n % 16 == 0:
        again = victims.outcome(wanted)
        if "right" not in again or (again := victims.left_behind()):
            return {**told, "bad": f"the next program: {again}"}
    return told


def work(first: int) -> None:
    """Print a line of JSON for each case, from the first on."""
    from tests.torture import victims

    wanted = victims.expected()
    calls = Calls()
    for _ in range(3):  # from the same line as later: its stack is known then
        victims.outcome(wanted)
    calls.arm("new", 0)
    victims.outcome(wanted)
    calls.disarm()
    print(json.dumps({"total": calls.seen}), flush=True)
    for n in range(first, calls.seen + 1):
        print(json.dumps({"n": n}), flush=True)
        print(json.dumps(outcome(calls, n, wanted)), flush=True)


class Campaign:
    def __init__(self, library: Path, seconds: float, seed: int) -> None:
        self.env = {**os.environ, "LD_PRELOAD": str(library)}
        self.end = time.monotonic() + seconds
        self.told: Told = {**part.sums(seed), "total": 0}
        self.seed = seed

    def run(self) -> dict[str, Any]:
        """Go through all cases once, from a drawn one on, as far as time allows."""
        total = self._total()
        start = random.Random(self.seed).randint(1, total)
        for first, end in ((start, total), (1, start - 1)):
            n = first
            while n <= end and time.monotonic() < self.end:
                n = self._from(n, end)
        self.told["complete"] = self.told["cases"] >= total
        return self.told

    def _start(self, first: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", __spec__.name, "--first", str(first)]
        return subprocess.Popen(
            command, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def _total(self) -> int:
        worker = self._start(1)
        line = self._line(worker)
        worker.kill()
        worker.communicate()
        assert line, "the program did not come to its end"
        self.told["total"] = line["total"]
        return int(line["total"])

    def _from(self, first: int, last: int) -> int:
        """Have one process work from a case on; return the next case to do."""
        worker = self._start(first)
        n = first
        try:
            while time.monotonic() < self.end:
                line = self._line(worker)
                if line is None:
                    return last + 1 if self._ended_well(worker, n) else n + 1
                n = line.get("n", n)
                if "failed" in line:
                    part.add(self.told, line, "new", n, has_one=False)
                    n += 1
                    if n > last:
                        break
            return n
        finally:
            worker.kill()
            worker.communicate()

    def _line(self, worker: subprocess.Popen[bytes]) -> dict[str, Any] | None:
        """Return the next line; None if the process has ended or says nothing."""
        assert worker.stdout
        if not select.select([worker.stdout], [], [], PATIENCE_S)[0]:
            return None
        text = worker.stdout.readline()
        line: dict[str, Any] | None = json.loads(text) if text else None
        return line

    def _ended_well(self, worker: subprocess.Popen[bytes], n: int) -> bool:
        """Note a process that came to no end, or to a bad one, in a case."""
        try:
            if worker.wait(timeout=PATIENCE_S) == 0:
                return True
            how = f"ended with {worker.returncode}"
        except subprocess.TimeoutExpired:
            how = "hangs"
        worker.kill()
        stderr = worker.communicate()[1].decode(errors="replace")[-2000:]
        bad = {"hang": how == "hangs", "bad": f"{how}: {stderr}"}
        part.add(self.told, bad, "new", n, has_one=False)
        return False


def campaign(asked: argparse.Namespace) -> Told:
    with tempfile.TemporaryDirectory() as folder:
        library = preload.build(SOURCE, Path(folder))
        return Campaign(library, asked.seconds, asked.seed).run()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--first"]:
        work(int(sys.argv[2]))
    else:
        part.main(__doc__, campaign)
