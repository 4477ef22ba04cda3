"""What the sanitizer costs, off and on, in instructions per launch.

A loop of torch.add runs under callgrind with two numbers of launches; their
difference, on the calling thread, is what a launch executes. Three figures:

- `after_ratio`: after the sanitizer was switched on and off again, against a
  process that never had it. This is what it leaves behind.
- `share`: of those instructions, the ones that ask whether an observer is
  there. This is what its existence costs those who never switch it on.
- `on_ratio`: while it is on. `--functions N` also lists the N functions that
  execute most of what it adds.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from _callgrind import MARK, Counts, Function, count, per_call
from _harness import bench, emit

PROGRAM = f"""
import os, sys, torch
state, few, many = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
# The same calls in all, so that plans and memory are where they are.
if state != "never":
    torch.npu._sanitizer.enable_npu_sanitizer()
torch.ones(8, 8, device="npu") + 1
torch.npu.synchronize()
if state == "after":
    torch.npu._sanitizer.disable_npu_sanitizer()
x, y = torch.rand(8, 8).npu(), torch.rand(8, 8).npu()
def loop(n):
    for _ in range(n):
        torch.add(x, y)
    torch.npu.synchronize()
loop(300)  # plans, caches, specialised bytecode
for n in (few, many):
    {MARK}
    for _ in range(n):
        torch.add(x, y)
    {MARK}
    torch.npu.synchronize()  # not counted: spinning is not the launch's
os._exit(0)
"""
# The call of observers() and the test of what it returns.
AROUND_A_QUESTION = 3


def per_launch(state: str, few: int, many: int, folder: Path) -> Counts:
    # A part with launches comes after each other one.
    parts = count(folder, PROGRAM, state, str(few), str(many))[1::2]
    return per_call(parts[0], parts[1], many - few)


def of_questions(counts: Counts) -> tuple[float, float]:
    """Return the instructions inside npu::observers() and how often it is called."""

    def asks(function: Function) -> bool:
        return function[1].startswith("npu::observers(")

    own = sum(n for function, n in counts.items() if asks(function))
    return own, sum(n for function, n in counts.calls.items() if asks(function))


# Below what the ring holds: no launch waits for space.
@bench(few=(200, 200, 1), many=(2200, 2200, 2), functions=(0, 0, 0))
def main(few: int, many: int, functions: int) -> None:
    """Print a JSON line. Needs valgrind; takes some minutes."""
    with tempfile.TemporaryDirectory() as folder:
        found = {
            state: per_launch(state, few, many, Path(folder))
            for state in ("never", "after", "on")
        }
    totals = {state: counts.total() for state, counts in found.items()}
    total = totals["never"]
    own, calls = of_questions(found["never"])
    emit(
        case="sanitizer_instructions",
        instructions=round(total, 1),
        after_instructions=round(totals["after"], 1),
        after_ratio=round(totals["after"] / total, 5),
        on_instructions=round(totals["on"], 1),
        on_ratio=round(totals["on"] / total, 3),
        questions=round(calls, 2),
        share=round((own + AROUND_A_QUESTION * calls) / total, 5),
    )
    added = found["on"]
    added.subtract(found["never"])
    for (library, name), n in added.most_common(functions):
        print(f"{n:8.1f} {Path(library).name:24.24} {name[:150]}")


if __name__ == "__main__":
    main()
