"""Run the shipped alert rules, unchanged, over programs that are well and ill.

    python tests/observability/watch_alerts.py --minutes 60
    python tests/observability/watch_alerts.py --minutes 5 --faults all

A Prometheus scrapes an exporter every 15 seconds, as the shipped configuration says.
While the programs of WELL run for --minutes, no alert may fire. Then each fault is
planted, and its alerts must fire within the time that their rules ask for, and no
others. Each must name the process, its script, and the line where it is known. Prints a
line of JSON for each change of an alert, a table, and a line of JSON with what came of
it, which out/watch.json has, too; the exit status is 0 if all of that was so. No
program of WELL and no exporter may hold more memory, descriptors or threads at the end
than after ten minutes.

It has a /dev/shm of its own, so that it sees its own processes only.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT)]

import yaml  # noqa: E402
from alert_programs import ILL, WELL, Fault, Program  # noqa: E402
from footprints import Footprints  # noqa: E402
from interpreter import environment  # noqa: E402
from own_mounts import in_own_mounts  # noqa: E402
from prometheus_server import Prometheus, exported, serving  # noqa: E402

from tests.search.report import OUT, about  # noqa: E402

_STEP_S = 2.0
_SCRAPES_S = 60.0  # so long until a reading is in a rate, and a rule has seen it
# Alerts whose description has a line of the program.
_WITH_LINE = {
    "NpuAsyncError",
    "NpuHostBlocked",
    "NpuProcessHung",
    "NpuProcessKilled",
    "NpuStreamPoisoned",
    "NpuTrainerQuiet",
}
# Of processes that nobody can read, so nobody can name.
_NAMELESS = {"NpuSegmentsUnreadable"}
_UNITS = {"s": 1, "m": 60, "h": 3600}
_PRIVATE = "mount -t tmpfs -o size=512m tmpfs /dev/shm || exit 1"


def say(**what: Any) -> None:
    now = datetime.datetime.now().isoformat(timespec="seconds")
    print(json.dumps({"time": now, **what}), flush=True)


def rules_by_name(text: str) -> dict[str, dict[str, Any]]:
    groups = yaml.safe_load(text)["groups"]
    return {r.get("alert") or r["record"]: r for g in groups for r in g["rules"]}


def seconds(text: str) -> float:
    return sum(
        float(n) * _UNITS[unit] for n, unit in re.findall(r"(\d+)([smh])(?!s)", text)
    )


def patience(name: str, rules: dict[str, dict[str, Any]]) -> float:
    """Return how many seconds a rule may take: its times, and those of its parts.

    What was there at any time, however long ago, it need not wait for.
    """
    rule = rules[name]
    waits = re.sub(
        r"(last_over_time|max_over_time\(timestamp)\([^[]*\[\w+", "", rule["expr"]
    )
    own = max((seconds(r) for r in re.findall(r"\[(\w+)", waits)), default=0)
    parts = [patience(p, rules) for p in rules if ":" in p and p in rule["expr"]]
    return seconds(rule.get("for", "0s")) + own + max([_SCRAPES_S, *parts])


class Programs:
    """The processes, by name."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.running: dict[str, subprocess.Popen[str]] = {}

    def start(self, name: str, program: Program) -> None:
        script = self._folder / f"{name}.py"
        script.write_text(program.code)
        self.running[name] = subprocess.Popen(
            [sys.executable, str(script), str(self._folder / "store")],
            env=environment(**program.env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(self._folder / f"{name}.log").open("w"),
            text=True,
        )

    def wait_ready(self, name: str) -> None:
        process = self.running[name]
        assert process.stdout
        if process.stdout.readline().strip() != "ready":
            log = (self._folder / f"{name}.log").read_text()
            raise SystemExit(f"{name} did not start: {log}")

    def strike(self, name: str, killed: bool) -> None:
        """Kill the program, or tell it to fall ill."""
        process = self.running[name]
        if killed:
            process.kill()
            return
        assert process.stdin
        process.stdin.write("now\n")
        process.stdin.flush()

    def ended(self, names: list[str]) -> list[str]:
        return [name for name in names if self.running[name].poll() is not None]

    def name_of(self, pid: str) -> str:
        for name, process in self.running.items():
            if str(process.pid) == pid:
                return name
        return ""

    def named_in(self, name: str, text: str, *, line: bool) -> bool:
        """Return whether a text has the PID and the script of a program."""
        if name not in self.running:
            return True
        script = f"{name}.py"
        who = f"{script} (PID {self.running[name].pid}"
        return who in text and (not line or f"{script}:" in text)

    def end(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()


class Watch:
    """What Prometheus says of the alerts, as it changes."""

    def __init__(self, prometheus: Prometheus, programs: Programs) -> None:
        self._prometheus, self._programs = prometheus, programs
        self._states: dict[str, tuple[str, dict[str, str], str]] = {}
        self.fired: dict[tuple[str, str], float] = {}  # alert, program: first moment
        self.texts: dict[tuple[str, str], str] = {}
        self.pending: set[tuple[str, str]] = set()

    def look(self) -> None:
        """Print each alert that is new, has begun to fire, or is over."""
        now: dict[str, tuple[str, dict[str, str], str]] = {}
        for alert in self._prometheus.alerts():
            labels, state = alert["labels"], alert["state"]
            key = json.dumps(labels, sort_keys=True)
            known = self._states.get(key)
            program = self._programs.name_of(labels.get("process", ""))
            now[key] = state, labels, program
            if known is None or known[0] != state:
                say(program=program, **alert)
            if state == "firing":
                self.fired.setdefault((labels["alertname"], program), time.monotonic())
                text = alert["annotations"]["description"]
                self.texts.setdefault((labels["alertname"], program), text)
            else:
                self.pending.add((labels["alertname"], program))
        for key, (_, labels, program) in self._states.items():
            if key not in now:
                say(state="over", labels=labels, program=program)
        self._states = now

    def seen(self, pid: int) -> bool:
        """Return whether three scrapes have had that process."""
        query = f'count_over_time(npu_dispatch_process_info{{pid="{pid}"}}[5m]) > 2'
        return bool(self._prometheus.ask(query))


@contextlib.contextmanager
def watching(
    folder: Path, rules: str
) -> Iterator[tuple[Watch, Programs, list[subprocess.Popen[str]]]]:
    """Give the watch, its programs, and two exporters; the second may be killed."""
    programs = Programs(folder)
    with contextlib.ExitStack() as stack:
        stack.callback(programs.end)
        for name, program in WELL.items():
            programs.start(name, program)
        for name in WELL:
            programs.wait_ready(name)
        env = environment(NPU_AUTOLOAD="0")
        first, target = stack.enter_context(serving(env))
        pid = programs.running["notebook"].pid
        second, other = stack.enter_context(serving(env, str(pid)))
        prometheus = Prometheus(folder, [target, other], rules, quick=False)
        stack.enter_context(prometheus)
        yield Watch(prometheus, programs), programs, [first, second]


def watch_the_well(
    watch: Watch, minutes: float, footprints: Footprints, pids: dict[str, int]
) -> dict[str, Any]:
    end = time.monotonic() + minutes * 60
    while time.monotonic() < end:
        time.sleep(_STEP_S)  # Prometheus tells nobody when it has evaluated
        watch.look()
        footprints.measure(pids)
    return {
        "minutes": minutes,
        "fired": sorted(map(list, watch.fired)),
        "held": footprints.by_process(),
        "files": [footprints.files[0], footprints.files[-1]],
        "grown": footprints.grown(),
    }


def plant(
    faults: dict[str, Fault],
    limits: dict[str, float],
    watch: Watch,
    programs: Programs,
    exporter: subprocess.Popen[str],
) -> dict[str, Any]:
    """Let programs fall ill, and return after how many seconds each alert came."""
    started = {
        f"{fault} {i}": program
        for fault, planted in faults.items()
        for i, program in enumerate(planted.programs)
    }
    for name, program in started.items():
        programs.start(name, program)
    for name in started:
        programs.wait_ready(name)
    while not all(watch.seen(programs.running[name].pid) for name in started):
        time.sleep(_STEP_S)
        watch.look()
    watch.fired.clear()
    begin = time.monotonic()
    for fault, planted in faults.items():
        say(planted=fault)
        if planted.killed and not planted.programs:
            exporter.kill()
        for i in range(len(planted.programs)):
            programs.strike(f"{fault} {i}", planted.killed)
    came: dict[str, Any] = {}
    while time.monotonic() < begin + max(limits.values()):
        time.sleep(_STEP_S)
        watch.look()
        for fault, planted in faults.items():
            name = f"{fault} {len(planted.programs) - 1}"
            for alert in planted.alerts:
                by = name if (alert, name) in watch.fired else ""
                at = watch.fired.get((alert, by))
                after = None if at is None else round(at - begin, 1)
                text, line = watch.texts.get((alert, by), ""), alert in _WITH_LINE
                named = alert in _NAMELESS or programs.named_in(name, text, line=line)
                came[f"{fault}: {alert}"] = {
                    "after_s": after,
                    "within_s": limits[alert],
                    "named": named,
                    "ok": after is not None and after <= limits[alert] and named,
                }
        if all(found["after_s"] is not None for found in came.values()):
            break
    return came


def table(
    faults: dict[str, Fault], watch: Watch, programs: Programs
) -> tuple[str, list[list[str]]]:
    """Return expected and seen alerts by program, and those that nobody expected."""
    expected: dict[str, tuple[str, ...]] = dict.fromkeys(programs.running, ())
    of_exporters = {"": ()}
    for fault, planted in faults.items():
        if not planted.programs:
            continue
        expected[f"{fault} {len(planted.programs) - 1}"] = planted.alerts
    lines = ["| program | expected | seen | pending only | false |", "|" + "---|" * 5]
    false: list[list[str]] = []
    anyones = {alert for planted in faults.values() for alert in planted.alerts}
    for program, wanted in (expected | of_exporters).items():
        seen = sorted(alert for alert, by in watch.fired if by == program)
        waits = sorted(a for a, by in watch.pending if by == program and a not in seen)
        wrong = [a for a in seen if a not in (wanted if program else anyones)]
        false += [[alert, program] for alert in wrong]
        cells = program or "(exporters)", *map(" ".join, (wanted, seen, waits, wrong))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines), false


def run(minutes: float, faults: dict[str, Fault], text: str) -> bool:
    rules = rules_by_name(text)
    wanted = {alert for fault in faults.values() for alert in fault.alerts}
    if unknown := sorted(wanted - rules.keys()):
        raise SystemExit(f"no rule is called {', '.join(unknown)}")
    limits = {alert: patience(alert, rules) for alert in wanted}
    began = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M UTC}"
    with (
        tempfile.TemporaryDirectory() as folder,
        watching(Path(folder), text) as (watch, programs, exporters),
    ):
        pids = {n: p.pid for n, p in programs.running.items()}
        pids |= {f"exporter {i}": p.pid for i, p in enumerate(exporters)}
        say(watching=pids)
        summary: dict[str, Any] = {}
        with contextlib.suppress(KeyboardInterrupt):
            summary["well"] = watch_the_well(watch, minutes, Footprints(), pids)
            say(well=summary["well"])
            if faults:
                summary["faults"] = plant(faults, limits, watch, programs, exporters[1])
        text, summary["false"] = table(faults, watch, programs)
        print(text, flush=True)
        summary["pending"] = sorted(map(list, watch.pending))
        summary["ended"] = programs.ended(list(WELL))
    ok = (
        "well" in summary
        and not summary["well"]["fired"]
        and not summary["well"]["grown"]
        and not summary["false"]
        and not summary["ended"]
        and all(found["ok"] for found in summary.get("faults", {}).values())
    )
    say(summary=summary, ok=ok)
    if ok and faults:
        found = {**summary["well"], **summary, "began": began, **about()}
        del found["well"]
        OUT.mkdir(exist_ok=True)
        (OUT / "watch.json").write_text(json.dumps(found) + "\n")
    return ok


def in_private_memory() -> None:
    """Go on in a mount namespace whose /dev/shm is nobody else's."""
    if os.environ.get("WATCH_ALERTS_PRIVATE"):
        return
    os.environ["WATCH_ALERTS_PRIVATE"] = "1"
    command = [*in_own_mounts(_PRIVATE), sys.executable, *sys.argv]
    os.execvp(command[0], command)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--faults", default="", help=f"names, or all: {', '.join(ILL)}")
    parser.add_argument("--rules", type=Path, help="instead of those that ship")
    asked = parser.parse_args()
    names = list(ILL) if asked.faults == "all" else asked.faults.split(",")
    if unknown := [name for name in names if name and name not in ILL]:
        parser.error(f"unknown faults {unknown}; there are {', '.join(ILL)}")
    in_private_memory()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    text = asked.rules.read_text() if asked.rules else exported("alerts")
    return not run(asked.minutes, {n: ILL[n] for n in names if n}, text)


if __name__ == "__main__":
    sys.exit(main())
