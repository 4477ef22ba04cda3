"""Train the same GPT on cpu and on npu, and compare: what `make demo` runs.

Leaves out/demo.png and one log per device.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).resolve().parent
DEVICES = ("cpu", "npu")
Log = list[dict[str, Any]]

console = Console()


def train(device: str, size: str, steps: int, seed: int, log: Path) -> Log:
    """Train in a process of its own; return its log."""
    script = [str(HERE / "train_gpt.py"), "--device", device, "--size", size]
    script += ["--steps", str(steps), "--seed", str(seed), "--log", str(log)]
    launcher = ["-m", "npu_dispatch", "run"] if device == "npu" else []
    subprocess.run([sys.executable, *launcher, *script], check=True)
    return [json.loads(line) for line in log.read_text().splitlines()]


def smooth(values: list[float]) -> list[float]:
    """Return the means of ten: reading the losses makes every tenth step wait."""
    return [statistics.fmean(values[i : i + 10]) for i in range(0, len(values), 10)]


def step_ms(log: Log) -> float:
    """Return the usual time of a step in the second half of the run."""
    return statistics.median(
        smooth([record["step_ms"] for record in log])[-len(log) // 20 :]
    )


def table(size: str, logs: dict[str, Log]) -> Table:
    cpu, npu = logs["cpu"], logs["npu"]
    pairs = zip(cpu, npu, strict=True)
    apart = max(abs(a["loss"] - b["loss"]) for a, b in pairs)
    view = Table(title=f"{size} GPT, {len(cpu)} steps, same seed")
    view.add_column("")
    for column in (*DEVICES, "npu / cpu"):
        view.add_column(column, justify="right")
    times = {device: step_ms(log) for device, log in logs.items()}
    view.add_row("first loss", f"{cpu[0]['loss']:.4f}", f"{npu[0]['loss']:.4f}", "")
    view.add_row("last loss", f"{cpu[-1]['loss']:.4f}", f"{npu[-1]['loss']:.4f}", "")
    equal = "bit-identical" if apart == 0 else f"{apart:.2e}"
    view.add_row("largest difference", "", equal, "")
    ratio = times["npu"] / times["cpu"]
    view.add_row("step", *(f"{times[d]:.2f} ms" for d in DEVICES), f"{ratio:.2f}")
    depths = sorted(record.get("depth", 0) for record in npu)
    view.add_row(
        "queue depth p50 / max", "", f"{depths[len(depths) // 2]} / {depths[-1]}"
    )
    return view


def draw(size: str, logs: dict[str, Log], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, (loss, time, depth) = plt.subplots(1, 3, figsize=(13, 3.8))
    styles = {"cpu": {"color": "0.6", "lw": 4}, "npu": {"color": "tab:red", "lw": 1.2}}
    for device, log in logs.items():
        steps = range(0, len(log), 10)
        losses = smooth([record["loss"] for record in log])
        times = smooth([record["step_ms"] for record in log])
        loss.plot(steps, losses, label=device, **styles[device])
        time.plot(steps, times, label=device, color=styles[device]["color"], lw=1.5)
    npu = logs["npu"]
    depth.plot(
        [record["step"] for record in npu],
        [record.get("depth", 0) for record in npu],
        color="tab:red",
        lw=1,
    )
    loss.set(title="loss (mean of 10)", xlabel="step")
    loss.legend()
    # A burst of other work on the machine must not flatten the rest.
    top = 3 * max(map(step_ms, logs.values()))
    time.set(title="step time, ms (mean of 10)", xlabel="step", ylim=(0, top))
    time.legend()
    depth.set(title="tasks queued at the end of a step", xlabel="step", ylim=(0, None))
    for axis in (loss, time, depth):
        axis.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"{size} GPT on the standard library's sources: cpu and npu")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def say_where_the_command_is() -> None:
    """`make` installs into a folder that a shell does not look into."""
    folder = Path(sys.executable).parent
    if shutil.which("npu-dispatch", path=os.environ.get("PATH", "")) is None:
        console.print(
            f"the command: {folder / 'npu-dispatch'} doctor\n"
            f"or, for a whole shell: source {folder / 'activate'}",
            soft_wrap=True,
        )


@click.command()
@click.option("--size", default="tiny", show_default=True, help="Of the GPT.")
@click.option("--steps", default=600, show_default=True, help="Training steps.")
@click.option("--seed", default=0, show_default=True, help="Of the weights and data.")
@click.option(
    "--out",
    default="out",
    type=click.Path(path_type=Path),
    help="Folder of the results.",
)
def main(size: str, steps: int, seed: int, out: Path) -> None:
    """Train on both devices; leave OUT/demo.png."""
    out.mkdir(parents=True, exist_ok=True)
    logs = {
        device: train(device, size, steps, seed, out / f"demo_{device}.jsonl")
        for device in DEVICES
    }
    console.print(table(size, logs))
    draw(size, logs, out / "demo.png")
    console.print(f"picture: {out / 'demo.png'}")
    say_where_the_command_is()


if __name__ == "__main__":
    main()
