"""How near `npu-dispatch plan` comes: its prediction of a step against the step that
driver host takes, with a spec measured just before.

What `calibrate` times was chosen by some kinds of programs, and others are held out.
Kernels leave a core to Python, as those of an accelerator do. A plan beside busy
processes is compared with one alone, and programs whose time follows from a spec by
hand with that time.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _harness import Effort, Only, bench, emit
from _plan_job import real_and_planned_us
from _plan_programs import COUNT, HELD_OUT, PROGRAMS, STATED
from _processes import busy

from npu_dispatch.plan.record import record
from npu_dispatch.plan.report import Report
from npu_dispatch.plan.spec import Spec, load

SCRIPT = str(Path(__file__).with_name("_plan_programs.py"))
WARM_UPS = 10
# More than are recorded: the plan ends the program once it has enough steps.
ENDLESS_S = 1000.0
# What is launch-bound on this device.
LAUNCHES, DEVICE = "mlp", "t4"
BUSY_PROCESSES = 2


def real_step(program: str, seconds: float) -> float:
    """Return the microseconds of a step on driver host."""
    done = subprocess.run(
        [sys.executable, SCRIPT, program, str(seconds)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def planned(program: str, device: Spec, steps: int | None = None) -> Report:
    command = [SCRIPT, program, str(ENDLESS_S)]
    warmup = WARM_UPS if steps is None else 1
    [found] = record(command, [device], steps=steps, warmup=warmup)
    return found.report


def calibrated() -> Spec:
    """Return the spec of this machine."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "cpu.toml")
        subprocess.run(
            [sys.executable, "-m", "npu_dispatch", "calibrate", path],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        return load(path)


def compare(
    program: str, device: Spec, repetitions: int, seconds: float, steps: int | None
) -> float:
    """Print a line, and return the error."""
    real, plans = [], []
    for _ in range(repetitions):
        real.append(real_step(program, seconds))
        plans.append(planned(program, device, steps))
    found = against("real", real, [plan.step_us for plan in plans])
    emit(
        case=program,
        held_out=program in HELD_OUT,
        kind="held out" if program in HELD_OUT else "fitted",
        limit=plans[-1].verdict,
        measured=round(plans[-1].measured, 3),
        interpolated=round(plans[-1].interpolated, 3),
        **found,
    )
    return found["error"]


def against(what: str, us: list[float], planned_us: list[float]) -> dict[str, float]:
    """Return the medians, and by how much the plan errs."""
    one, other = statistics.median(us), statistics.median(planned_us)
    return {
        f"{what}_us": round(one, 1),
        "planned_us": round(other, 1),
        "ratio": round(other / one, 3),
        "error": round(abs(other / one - 1), 4),
    }


def beside_load(repetitions: int, steps: int | None) -> None:
    """Plan one program alone and beside busy processes, in turns."""
    alone: list[float] = []
    beside: list[float] = []
    for _ in range(repetitions):
        for found, count in ((alone, 0), (beside, BUSY_PROCESSES)):
            with busy(count):
                found.append(planned(LAUNCHES, load(DEVICE), steps).step_us)
    found = against("alone", alone, beside)
    emit(case="load", difference=found.pop("error"), **found)


def against_stated(program: str, steps: int | None) -> None:
    device = load(DEVICE)
    stated = COUNT * STATED[program][1](device)
    found = planned(program, device, steps).step_us
    emit(case=program, **against("stated", [stated], [found]))


def two_ranks(repetitions: int) -> None:
    found = [real_and_planned_us() for _ in range(repetitions)]
    emit(case="ranks", **against("real", *map(list, zip(*found, strict=True))))


@bench(repetitions=(1, 1, 1), load_repetitions=(3, 1, 1), seconds=(1.0, 0.5, 0.05))
def main(
    repetitions: int, load_repetitions: int, seconds: float, only: Only, effort: Effort
) -> None:
    """Print a JSON line per program, then the median and the worst error."""
    os.environ["OMP_NUM_THREADS"] = str(max((os.cpu_count() or 1) - 1, 1))
    smoke = effort is Effort.SMOKE  # whose spec is not this machine's
    steps = 3 if smoke else None
    if chosen := [*filter(only, PROGRAMS[: 1 if smoke else None])]:
        device = load(DEVICE) if smoke else calibrated()
        errors = [
            compare(program, device, repetitions, seconds, steps) for program in chosen
        ]
        emit(
            case="median_error",
            error=round(statistics.median(errors), 3),
            worst=round(max(errors), 3),
        )
    for program in filter(only, [*STATED][: 1 if smoke else None]):
        against_stated(program, steps)
    if only("load") and not smoke:
        beside_load(load_repetitions, steps)
    if only("ranks") and not smoke:
        two_ranks(load_repetitions)


if __name__ == "__main__":
    main()
