"""How near `npu-dispatch plan` comes: its prediction of a training step against
the step that driver host takes, with a sheet measured just before.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from _harness import Effort, at_most, bench, emit

from npu_dispatch.plan.record import record
from npu_dispatch.plan.sheet import Sheet, load

SCRIPT = str(Path(__file__).with_name("_plan_script.py"))
# model: kind of optimizer kernels, steps
MODELS = {
    "mlp": ("foreach", 200),
    "gpt_tiny": ("fused", 40),
    "gpt_wide": ("fused", 5),
    "cnn": ("foreach", 5),
    "lstm": ("fused", 60),
}
# Of a smoke run, which needs no sheet of this machine.
SMOKE_MODELS = {"mlp": ("foreach", 4)}
SMOKE_SHEET = "t4"


def real_step(model: str, kind: str, steps: int) -> float:
    done = subprocess.run(
        [sys.executable, SCRIPT, model, kind, str(steps)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout.split()[-1])


def calibrated(folder: Path) -> Sheet:
    """Return the sheet of this machine."""
    path = str(folder / "cpu.toml")
    subprocess.run(
        [sys.executable, "-m", "npu_dispatch", "calibrate", path],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return load(path)


@bench(repetitions=(3, 2, 1))
def main(repetitions: int, only: str, effort: Effort) -> None:
    """Print a JSON line per model, then the median error."""
    errors = []
    smoke = effort is Effort.SMOKE
    with tempfile.TemporaryDirectory() as folder:
        device = load(SMOKE_SHEET) if smoke else calibrated(Path(folder))
        for model, (kind, steps) in (SMOKE_MODELS if smoke else MODELS).items():
            if only not in model:
                continue
            real, planned = [], []
            for _ in range(repetitions):
                real.append(real_step(model, kind, steps))
                command = [SCRIPT, model, kind, str(steps)]
                warmup = min(10, steps - 2)
                found = record(command, device, steps=steps - warmup, warmup=warmup)
                planned.append(found.report.step_us)
            one, other = statistics.median(real), statistics.median(planned)
            errors.append(abs(other / one - 1))
            emit(
                case=model,
                real_us=round(one, 1),
                planned_us=round(other, 1),
                ratio=round(other / one, 3),
                replay_error=round(found.report.replay_error, 4),
            )
    if errors:
        emit(
            case="median_error",
            error=round(statistics.median(errors), 3),
            goals={"error": at_most(0.20)},
        )


if __name__ == "__main__":
    main()
