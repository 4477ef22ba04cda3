"""Kernels that throw, launchers that stand still, forks, signals and exits.

`python -m tests.torture.endings --seconds 60`; prints JSON. Each case is a child
of its own (victims.py), at a position or a moment that is drawn. One that is stopped,
as by Ctrl-Z and a debugger, is watched meanwhile by its statistics: it is seen to be
stopped and nothing moves, and afterwards nothing is told that is not so.
"""

import argparse
import contextlib
import ctypes
import itertools
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch

from npu_dispatch.observe.judge.describe import dead, dump_lines, postmortem_lines
from npu_dispatch.observe.judge.flight_recorder import seen_of
from npu_dispatch.observe.judge.verdict import stuck_for
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.listing import Processes, ProcessView
from tests.torture import part, program, victims
from tests.torture.part import Told

_SEIZE, _INTERRUPT, _DETACH = 0x4206, 0x4207, 17
_WALL = 0x40000000
_LONG_S = 0.5  # and what the watchdog calls a standstill is less
LATE_DRIVER = (
    Path(__file__).resolve().parents[2] / "build/core/tests/cpp/libnpu_delayed.so"
)


def _fail_late() -> None:
    """Launch what fails only on the launcher."""
    weight = torch.ones(4, 2).npu()
    torch.nn.functional.embedding(torch.tensor([9]).npu(), weight)


def _judged(result: Told, wanted: program.State, *may_raise: str) -> Told:
    if "wrong" in result:
        return {"bad": f"wrong: {result['wrong']}"}
    if "raised" in result and result["raised"] not in may_raise:
        return {"bad": f"raised {result}"}
    return {**result, **victims.again(wanted)}


def throw(drawn: int, wanted: program.State) -> Told:
    """Let a kernel throw before the n-th step, on one stream or the other."""
    turn, position = divmod(drawn, len(program.STEPS) + 1)
    side = bool(turn % 2)

    def before(number: int, s: program.State) -> None:
        if number == position:
            with torch.npu.stream(s["side"] if side else torch.npu.current_stream()):
                _fail_late()

    def body() -> Told:
        result = victims.outcome(wanted, before=before)
        if "raised" not in result:
            return {"bad": f"a failed kernel before step {position}: {result}"}
        text = result["text"]
        if "embedding" not in text or "endings.py:" not in text:
            return {"bad": f"names no operator or line: {text}"}
        return _judged(result, wanted, result["raised"])

    return victims.in_child(body)


def throw_in_graph(drawn: int, wanted: program.State) -> Told:
    """Let a captured kernel throw at each replay."""
    del drawn

    def body() -> Told:
        weight = torch.ones(4, 2).npu()
        index = torch.tensor([1]).npu()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            torch.nn.functional.embedding(index, weight)
        graph.replay()
        index.fill_(9)
        graph.replay()
        try:
            torch.npu.synchronize()
        except IndexError as error:
            if "embedding" not in str(error):
                return {"bad": f"names no operator: {error}"}
            return victims.again(wanted)
        return {"bad": "a failed replay was not reported"}

    return victims.in_child(body)


def falsely_busy(drawn: int, wanted: program.State) -> Told:
    """Use a driver that now and then refuses a task without need, and ends it late."""
    places = len(program.STEPS) + 1
    position = drawn % (2 * places)  # half of the programs throw nothing

    def before(number: int, s: program.State) -> None:
        del s
        if number == position:
            _fail_late()

    def body() -> Told:
        os.environ |= {"NPU_DRIVER": str(LATE_DRIVER), "NPU_TEST_SEED": str(drawn)}
        result = victims.outcome(wanted, before=before)
        if ("raised" in result) != (position < places):
            return {"bad": f"a failed kernel before step {position}: {result}"}
        return _judged(result, wanted, "DeviceIndexError")

    return victims.in_child(body)


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
        if not seen_of(first, 0).stopped:
            self.wrong.append(f"stop {self.stops}: not seen to be stopped")
        if self.stops == self.long:
            self._watchdog()
        list(dump_lines(first))
        second = _seen(processes)
        if second is None or _done(first) != _done(second):
            self.wrong.append(f"stop {self.stops}: something moves")
        streams = second.streams if second else ()
        stuck = max((stuck_for(second, s) for s in streams), default=0.0)
        if self.stops == len(program.STEPS) + 1 and stuck:
            self.wrong.append(f"all is done, and stuck for {stuck} s")

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


def _launchers(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                if (task / "comm").read_text().startswith("npu"):
                    found.append(int(task.name))
    return found


def stopped_launchers(drawn: int, wanted: program.State) -> Told:
    """Stop single threads of the child, as a tracer can, for moments."""
    rng = random.Random(drawn)
    libc = ctypes.CDLL(None, use_errno=True)

    def stop(thread: int) -> None:
        if libc.ptrace(_SEIZE, thread, 0, 0):
            return
        libc.ptrace(_INTERRUPT, thread, 0, 0)
        # It stops or it ends. Its tracer has to wait for either: until then a
        # process is not gone, though all of its threads are.
        if not os.WIFSTOPPED(os.waitpid(thread, _WALL)[1]):
            return
        time.sleep(rng.random() * 0.02)
        if libc.ptrace(_DETACH, thread, 0, 0):
            os.waitpid(thread, _WALL)  # it was killed while it stood still

    def stop_some(pid: int) -> None:
        end = time.monotonic() + 1.0
        while time.monotonic() < end:
            for thread in _launchers(pid):
                stop(thread)
            time.sleep(0.001)

    def body() -> Told:
        for _ in range(3):
            result = victims.outcome(wanted)
            if "right" not in result:
                return {"bad": f"{result}"}
        return victims.again(wanted)

    return victims.in_child(body, while_it_runs=stop_some)


def slow_launchers(drawn: int, wanted: program.State) -> Told:
    """Let all threads share one CPU, the launchers last."""
    rng = random.Random(drawn)
    cpu = rng.choice(sorted(os.sched_getaffinity(0)))

    def before(number: int, s: program.State) -> None:
        del number, s
        for thread in _launchers(os.getpid()):
            os.sched_setaffinity(thread, {cpu})
            os.setpriority(os.PRIO_PROCESS, thread, 19)
        os.sched_setaffinity(0, {cpu})

    def body() -> Told:
        return _judged(victims.outcome(wanted, before=before), wanted)

    return victims.in_child(body)


def few_files(drawn: int, wanted: program.State) -> Told:
    """Let the child open so many files and no more."""
    rng = random.Random(drawn)
    spare = rng.randrange(12)

    def body() -> Told:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (victims.descriptors() + spare, before[1])
        )
        result = victims.outcome(wanted)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        return _judged(result, wanted, "RuntimeError", "OSError")

    return victims.in_child(body)


def interrupted_calls(drawn: int, wanted: program.State) -> Told:
    """Interrupt every system call by a signal that has a handler."""
    rng = random.Random(drawn)
    period = rng.choice((0.0002, 0.001, 0.005))

    def body() -> Told:
        signal.signal(signal.SIGALRM, lambda *_: None)
        signal.setitimer(signal.ITIMER_REAL, period, period)
        result = victims.outcome(wanted)
        signal.setitimer(signal.ITIMER_REAL, 0)
        return _judged(result, wanted)

    return victims.in_child(body)


def forks(drawn: int, wanted: program.State) -> Told:
    """Fork and spawn, on the thread that launches and on another."""
    rng = random.Random(drawn)
    positions = set(rng.sample(range(len(program.STEPS)), 6))
    spawns = rng.random() < 0.5

    def one() -> None:
        if spawns:
            subprocess.run(["true"], check=True)
        elif (pid := os.fork()) == 0:
            try:
                torch.ones(2, device="npu")
            except RuntimeError:
                os._exit(0)
            os._exit(1)
        else:
            assert os.waitpid(pid, 0)[1] == 0, "a forked child"

    def before(number: int, s: program.State) -> None:
        del s
        if number in positions and number:
            one()

    def body() -> Told:
        failed: list[BaseException] = []

        def beside() -> None:
            try:
                for _ in range(4):
                    one()
            except BaseException as error:
                failed.append(error)

        torch.ones(1, device="npu")
        thread = threading.Thread(target=beside)
        thread.start()
        result = victims.outcome(wanted, before=before)
        thread.join()
        if failed:
            return {"bad": f"a fork beside: {failed[0]!r}"}
        return _judged(result, wanted)

    return victims.in_child(body)


def ctrl_c(drawn: int, wanted: program.State) -> Told:
    """Send Ctrl-C at some moment; what was not waited for is not lost."""
    rng = random.Random(drawn)
    after = rng.random() * 0.2

    def body() -> Told:
        result: Told = {"raised": "KeyboardInterrupt"}
        try:
            result = victims.outcome(wanted)
            time.sleep(1)  # the signal may come late
        except KeyboardInterrupt:
            pass
        return _judged(result, wanted, "KeyboardInterrupt")

    def at_some_time(pid: int) -> None:
        time.sleep(0.02 + after)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGINT)

    return victims.in_child(body, while_it_runs=at_some_time)


def exits(drawn: int, wanted: program.State) -> Told:
    """End the program before the n-th step, as sys.exit() and an error do."""
    position = drawn % len(program.STEPS)

    class LeaveError(Exception):
        pass

    def before(number: int, s: program.State) -> None:
        if number == position:
            kept.append(s)  # whatever it holds is there until the very end
            raise LeaveError

    kept: list[program.State] = []

    def body() -> Told:
        with contextlib.suppress(LeaveError):
            victims.outcome(wanted, before=before)
        return {"right": True}

    return victims.in_child(body, leave=True)


def killed(drawn: int, wanted: program.State) -> Told:
    """SIGKILL the process at some moment, and read what is left of it."""
    rng = random.Random(drawn)
    after = 0.02 + rng.random() * 0.2
    numbers: list[int] = []

    def kill(pid: int) -> None:
        numbers.append(pid)
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)

    def body() -> Told:
        while True:
            victims.outcome(wanted)

    found = victims.in_child(body, while_it_runs=kill)
    if found.get("hang"):
        return found
    with Processes() as processes:
        if numbers[0] in [view.info.pid for view in processes.refresh()]:
            return {"bad": "a dead process is listed"}
    left = dead(numbers[0])
    for path in left:
        with StatsReader(path) as reader:
            list(postmortem_lines(reader))
        path.unlink()
    return {"right": True, "left": len(left)}


def killed_watcher(drawn: int, wanted: program.State) -> Told:
    """SIGKILL who reads a process; the process does not notice."""
    rng = random.Random(drawn)
    after = rng.random() * 0.1

    def watch(pid: int) -> None:
        watcher = os.fork()
        if watcher == 0:
            with Processes(pid=pid) as processes:
                while True:
                    processes.refresh()
        time.sleep(after)
        os.kill(watcher, signal.SIGKILL)
        os.waitpid(watcher, 0)

    def body() -> Told:
        return _judged(victims.outcome(wanted), wanted)

    return victims.in_child(body, while_it_runs=watch)


CASES: dict[str, Callable[[int, program.State], Told]] = {
    case.__name__: case
    for case in (
        throw,
        throw_in_graph,
        falsely_busy,
        stopped,
        stopped_launchers,
        slow_launchers,
        few_files,
        interrupted_calls,
        forks,
        ctrl_c,
        exits,
        killed,
        killed_watcher,
    )
}
# As often as there is something else to hit.
WEIGHTS = {
    "throw": 8,
    "falsely_busy": 4,
    "exits": 4,
    "ctrl_c": 4,
    "forks": 3,
    "few_files": 2,
}


def campaign(asked: argparse.Namespace) -> Told:
    rng = random.Random(asked.seed)
    wanted, told = victims.expected(), part.sums(asked.seed)
    names = [asked.only] if asked.only else list(CASES)
    weights = [WEIGHTS.get(name, 1) for name in names]
    # From there on in turn, so that each position comes before any comes again.
    drawn_first = {name: rng.randrange(1 << 32) for name in names}
    others = (rng.choices(names, weights)[0] for _ in itertools.count())
    for name in part.in_time(itertools.chain(names, others), asked.seconds, told):
        drawn = drawn_first[name] + told["by_kind"].get(name, 0)
        part.add(told, CASES[name](drawn, wanted), name, drawn)
    return told


def one(name: str, drawn: str) -> Told:
    return CASES[name](int(drawn), victims.expected())


if __name__ == "__main__":
    part.main(
        __doc__,
        campaign,
        one=one,
        asks=("CASE", "DRAWN"),
        options=lambda p: p.add_argument("--only", choices=sorted(CASES)),
    )
