"""The campaign: everything that can give out, does; one table of what came of it.

`make torture`, or `python -m tests.torture.run --minutes 300 --json FILE`. Ends
with status 1 where something hung, was lost, or was wrong. README.md in this
folder says what each part does. `--every` fails every call of a cold program, in
place of the first and the last from each place in the code.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

from tests.search.children import run, run_module
from tests.search.report import ROOT, Report
from tests.torture.part import Told

SOAK = ROOT / "build" / "core" / "tests" / "cpp" / "soak"
# Of the time that there is.
SHARES = {
    "faults": 0.2,
    "warm_faults": 0.14,
    "files": 0.1,
    "endings": 0.18,
    "clocks": 0.06,
    "soak": 0.1,
    "null": 0.08,
    "damaged_files": 0.08,
    "clients": 0.06,
}
FAULTS = ("faults", "warm_faults", "files")
TOLD = ("faults injected", "hangs", "tasks lost", "wrong outcomes")


def run_part(name: str, seconds: float, *flags: str) -> Told:
    """Run a part in a process of its own; return its JSON."""
    # Setting up, and one case that hangs for as long as it is let.
    limit = seconds * 1.5 + 240
    try:
        if name == "null":
            done = run([SOAK, str(seconds)], limit, NPU_DRIVER="null")
        else:
            words = ("--seconds", str(seconds), *flags)
            done = run_module(f"tests.torture.{name}", *words, seconds=limit)
    except subprocess.TimeoutExpired:
        return {"bad": [f"no end after {limit:.0f} s"], "hangs": 1}
    try:
        told: Told = json.loads(done.stdout.splitlines()[-1])
    except (ValueError, IndexError):
        return {"bad": [f"ended with {done.returncode}: {done.stderr[-3000:]}"]}
    if name == "null":
        told["bad"] = ["tasks are lost"] * told["lost"]
        told["bad"] += ["it grows"] if told["grown"] else []
    return told


def figures(parts: dict[str, Told]) -> dict[str, float]:
    """Return the few numbers that say what was done, and what came of it."""

    def of(key: str, *names: str) -> float:
        return sum(parts.get(name, {}).get(key, 0) for name in names)

    inputs = parts.get("damaged_files", {}).get("inputs", {})
    return {
        "tasks run on the driver null": of("tasks", "null"),
        "operators run": of("operators", "soak"),
        "faults injected": of("injected", *FAULTS),
        "faults that raised a typed error": of("raised", *FAULTS),
        "faults with the right result": of("right", *FAULTS),
        "exceptions in kernels, stops, forks, signals, exits": of("cases", "endings"),
        "clock changes": of("cases", "clocks"),
        "damaged files read": sum(inputs.values()),
        "scrapes answered": of("scrapes", "clients"),
        "/livez requests": of("livez_asked", "clients"),
        "/livez requests answered": of("livez", "clients"),
        "/livez, slowest answer, ms": of("livez_worst_ms", "clients"),
        "hangs": of("hangs", *parts),
        "tasks lost": of("lost", "null"),
        "wrong outcomes": sum(len(told.get("bad", [])) for told in parts.values()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--only", choices=sorted(SHARES), action="append")
    parser.add_argument("--every", action="store_true", help="every cold call")
    parser.add_argument("--json", type=Path, help="instead of out/torture.json")
    options = parser.parse_args()
    chosen = options.only or list(SHARES)
    whole = sum(SHARES[name] for name in chosen)
    parts: dict[str, Told] = {}
    report = Report("torture", path=options.json, told=TOLD)
    for name in chosen:
        seconds = options.minutes * 60 * SHARES[name] / whole
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        began = time.monotonic()
        flags = ["--every"] if name == "faults" and options.every else []
        parts[name] = run_part(name, seconds, *flags)
        parts[name]["took_s"] = round(time.monotonic() - began, 1)
        for bad in parts[name].get("bad", []):
            wrong = bad if isinstance(bad, dict) else {"what": bad}
            what = f"{name}: {wrong['what']}"
            report.find(what, wrong.get("text", ""), again=wrong.get("again", ""))
    report.counts = figures(parts)
    report.seed = {name: of["seed"] for name, of in parts.items() if "seed" in of}
    report.details = {"parts": parts}
    sys.exit(report.end())


if __name__ == "__main__":
    main()
