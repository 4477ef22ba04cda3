"""The campaign: everything that can give out, does; one table of what came of it.

`make torture`, or `python -m tests.torture.run --minutes 300 --json FILE`. Ends
with status 1 where something hung, was lost, or was wrong. README.md in this
folder says what each part does. `--every` fails every call of a cold program, in
place of the first and the last from each place in the code.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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
Told = dict[str, Any]


def part(name: str, seconds: float, *flags: str) -> Told:
    """Run a part in a process of its own; return its JSON."""
    command = [sys.executable, "-m", f"tests.torture.{name}", "--seconds", str(seconds)]
    command += flags
    env = dict(os.environ)
    if name == "null":
        command, env = [str(SOAK), str(seconds)], {**env, "NPU_DRIVER": "null"}
    # Setting up, and one case that hangs for as long as it is let.
    limit = seconds * 1.5 + 240
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True,
            timeout=limit, check=False,
        )  # fmt: skip
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


def figures(parts: dict[str, Told]) -> Told:
    """Return the few numbers that say what was done, and what came of it."""

    def of(name: str, key: str) -> Any:
        return parts.get(name, {}).get(key, 0)

    def of_faults(key: str) -> int:
        return sum(int(of(name, key)) for name in FAULTS)

    cases = of("endings", "cases") or {}
    inputs = of("damaged_files", "inputs") or {}
    return {
        "tasks soaked, null driver": of("null", "tasks"),
        "operators soaked": of("soak", "operators"),
        "faults injected": of_faults("injected"),
        "of them: typed error": of_faults("raised"),
        "of them: right result": of_faults("right"),
        "kernels thrown, stops, forks, signals, exits": sum(cases.values()),
        "clocks stepped": of("clocks", "cases"),
        "bad inputs tried": sum(inputs.values()),
        "scrapes served": of("clients", "scrapes"),
        "/livez asked": of("clients", "livez_asked"),
        "/livez answered": of("clients", "livez"),
        "/livez, slowest, ms": of("clients", "livez_worst_ms"),
        "hangs": sum(told.get("hangs", 0) for told in parts.values()),
        "tasks lost": of("null", "lost"),
        "wrong, in all": sum(len(told.get("bad", [])) for told in parts.values()),
    }


def about(began: float) -> Told:
    """Return what a run's figures depend on."""

    def git(*words: str) -> str:
        command = ["git", *words]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    # "+": the files are not those of the commit.
    changed = "+" if git("status", "--porcelain", "--untracked-files=no") else ""
    return {
        "began": time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began)),
        "commit": git("rev-parse", "--short", "HEAD") + changed,
        "cores": os.cpu_count(),
        "torch": importlib.metadata.version("torch"),
    }


def table(found: Told) -> str:
    rows = [f"| {name} | {value:,} |" for name, value in found.items()]
    return "\n".join(["| what | figure |", "|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=6)
    parser.add_argument("--only", choices=sorted(SHARES), action="append")
    parser.add_argument("--every", action="store_true", help="every cold call")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "torture.json")
    options = parser.parse_args()
    chosen = options.only or list(SHARES)
    whole = sum(SHARES[name] for name in chosen)
    parts: dict[str, Told] = {}
    start, told = time.monotonic(), about(time.time())
    for name in chosen:
        seconds = options.minutes * 60 * SHARES[name] / whole
        print(f"{name}: {seconds:.0f} s", file=sys.stderr, flush=True)
        began = time.monotonic()
        flags = ["--every"] if name == "faults" and options.every else []
        parts[name] = part(name, seconds, *flags)
        parts[name]["took_s"] = round(time.monotonic() - began, 1)
        for wrong in parts[name].get("bad", []):
            print(f"  {name}: {wrong}", file=sys.stderr, flush=True)
    found = figures(parts)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    told["minutes"] = round((time.monotonic() - start) / 60, 1)
    told["seeds"] = {name: of["seed"] for name, of in parts.items() if "seed" in of}
    told |= {"figures": found, "parts": parts}
    options.json.write_text(json.dumps(told, indent=2) + "\n")
    print(table(found))
    sys.exit(bool(found["wrong, in all"] or found["hangs"]))


if __name__ == "__main__":
    main()
