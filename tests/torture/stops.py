"""Stops the whole process before each step, as Ctrl-Z and a debugger do.

Another process watches it by its statistics meanwhile: it sees that the process is
stopped and that nothing moves, and afterwards nothing that is not so.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from npu_dispatch.observe.judge.describe import dump_lines
from npu_dispatch.observe.judge.evidence import evidence_of
from npu_dispatch.observe.judge.watchdog import _stuck_for
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from tests.torture import program, victims
from tests.torture.part import Told

_LONG_S = 0.5  # and what the watchdog calls a standstill is less


def _seen(processes: Processes) -> ProcessView | None:
    views = processes.refresh()
    return views[0] if views else None


def _done(view: ProcessView) -> list[tuple[int, int]]:
    return [(s.stats.submitted, s.stats.retired) for s in view.streams]


class _Watcher:
    """Whoever looks at the process while it is stopped, and lets it go on."""

    def __init__(self, pid: int, long: int) -> None:
        self.pid, self.long = pid, long
        self.stops = 0
        self.wrong: list[str] = []

    def run(self) -> None:
        with Processes(pid=self.pid) as processes:
            while os.WIFSTOPPED(_next(self.pid)):
                self._look(processes)
                self.stops += 1
                os.kill(self.pid, signal.SIGCONT)

    def _look(self, processes: Processes) -> None:
        first = _seen(processes)
        if first is None:
            if self.stops:  # there is nothing to see of a program that begins
                self.wrong.append(f"stop {self.stops}: not listed")
            return
        reader = processes.reader(first)
        if not reader or not evidence_of(first, reader, 0)["stopped"]:
            self.wrong.append(f"stop {self.stops}: not seen to be stopped")
        if self.stops == self.long:
            self._watchdog()
        list(dump_lines(first))
        second = _seen(processes)
        if second is None or _done(first) != _done(second):
            self.wrong.append(f"stop {self.stops}: something moves")
        if self.stops == len(program.STEPS) + 1 and second and _stuck_for(second):
            self.wrong.append(f"all is done, and stuck for {_stuck_for(second)} s")

    def _watchdog(self) -> None:
        """Watch the process that stands still for longer than it may."""
        command = [sys.executable, "-m", "npu_dispatch.observe.judge.watchdog"]
        command += [str(self.pid), str(_LONG_S / 2)]
        try:
            done = subprocess.run(
                command, timeout=_LONG_S, capture_output=True, check=False
            )
        except subprocess.TimeoutExpired as end:  # it watches until the process ends
            text = (end.stderr or b"").decode()
        else:
            text = f"ended with {done.returncode}: {done.stderr.decode()}"
            self.wrong.append(f"the watchdog {text}")
        if "Traceback" in text:
            self.wrong.append(text)


def _next(pid: int) -> int:
    """Wait until a child stops; 0 where it ends, or does neither for too long.

    Its end is left to whoever waits for it.
    """
    end = time.monotonic() + victims.PATIENCE_S
    options = os.WSTOPPED | os.WEXITED | os.WNOWAIT | os.WNOHANG
    while time.monotonic() < end:
        found = os.waitid(os.P_PID, pid, options)
        if found and found.si_code == os.CLD_STOPPED:
            return os.waitpid(pid, os.WUNTRACED)[1]
        if found:
            return 0
        time.sleep(0.001)
    return 0


def stopped(drawn: int, wanted: program.State) -> Told:
    """Stop the process before each step, and once more when all is done."""
    long = drawn % (len(program.STEPS) + 2)
    watchers: list[_Watcher] = []

    def stop(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGSTOP)

    def body() -> Told:
        result = victims.outcome(wanted, before=stop)
        stop()
        if "right" not in result:
            return {"bad": str(result)}
        return victims.again(wanted)

    def watch(pid: int) -> None:
        watchers.append(_Watcher(pid, long))
        watchers[0].run()

    found = victims.in_child(body, while_it_runs=watch)
    watcher = watchers[0]
    if watcher.wrong and not found.get("bad"):
        found["bad"] = "; ".join(watcher.wrong)
    elif watcher.stops != len(program.STEPS) + 2 and not found.get("bad"):
        found["bad"] = f"{watcher.stops} stops"
    return found
