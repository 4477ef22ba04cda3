"""What the sanitizer costs when it is off, in instructions per launch.

A loop of torch.add runs under callgrind with two numbers of launches; their
difference, on the calling thread, is what a launch executes. Two figures:

- `after_ratio`: after the sanitizer was switched on and off again, against a
  process that never had it. This is what it leaves behind.
- `share`: of those instructions, the ones that ask whether an observer is
  there. This is what its existence costs those who never switch it on.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from _harness import at_most, bench, emit

PROGRAM = """
import os, sys, torch
launches, was_on = int(sys.argv[1]), sys.argv[2] == "on"
# The same calls in both, so that plans and memory are where they are.
if was_on:
    torch.npu._sanitizer.enable_npu_sanitizer()
torch.ones(8, 8, device="npu") + 1
torch.npu.synchronize()
if was_on:
    torch.npu._sanitizer.disable_npu_sanitizer()
x, y = torch.rand(8, 8).npu(), torch.rand(8, 8).npu()
def loop(n):
    for _ in range(n):
        torch.add(x, y)
    torch.npu.synchronize()
loop(300)  # plans, caches, specialised bytecode
for _ in range(launches):
    torch.add(x, y)
os._exit(0)  # without a wait: spinning is not the launch's
"""
# The call of observer() and the test of what it returns.
AROUND_A_QUESTION = 3


def instructions(launches: int, was_on: str, folder: Path) -> tuple[int, int, int]:
    """Return those of the main thread; of observer(); and calls of observer()."""
    out = folder / f"{was_on}.{launches}"
    subprocess.run(
        [
            "valgrind",
            "--tool=callgrind",
            "--separate-threads=yes",
            f"--callgrind-out-file={out}",
            sys.executable,
            "-c",
            PROGRAM,
            str(launches),
            was_on,
        ],
        env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    text = Path(f"{out}-01").read_text()
    total = int(re.search(r"^(?:totals|summary): (\d+)", text, re.M)[1])
    own, calls = observer_costs(text)
    return total, own, calls


def observer_costs(text: str) -> tuple[int, int]:
    """Return the instructions inside npu::observer() and how often it is called."""
    names: dict[str, str] = {}

    def name(word: str) -> str:
        key, _, rest = word.partition(" ")
        return names.setdefault(key, rest) if rest else names.get(key, key)

    own = calls = 0
    function = called = ""
    skip = False
    for line in text.splitlines():
        if line.startswith("fn="):
            function = name(line[3:])
        elif line.startswith("cfn="):
            called = name(line[4:])
        elif line.startswith("calls="):
            if called.startswith("npu::observer("):
                calls += int(line[6:].split()[0])
            skip = True  # the next line is the callee's cost
        elif skip:
            skip = False
        elif function.startswith("npu::observer(") and re.match(r"[+\-*\d]", line):
            own += int(line.split()[1])
    return own, calls


# Below what the ring holds: no launch waits for space.
@bench(few=(200, 200, 1), many=(2200, 2200, 2))
def main(few: int, many: int) -> None:
    """Print a JSON line. Needs valgrind; takes some minutes."""
    per_launch = {}
    with tempfile.TemporaryDirectory() as folder:
        for was_on in ("never", "on"):
            pair = [instructions(n, was_on, Path(folder)) for n in (few, many)]
            per_launch[was_on] = [
                (b - a) / (many - few) for a, b in zip(*pair, strict=True)
            ]
    total, own, calls = per_launch["never"]
    emit(
        case="sanitizer_off",
        instructions=round(total, 1),
        after_instructions=round(per_launch["on"][0], 1),
        after_ratio=round(per_launch["on"][0] / total, 5),
        questions=round(calls, 2),
        share=round((own + AROUND_A_QUESTION * calls) / total, 5),
        goals={"after_ratio": at_most(1.005), "share": at_most(0.005)},
    )


if __name__ == "__main__":
    main()
