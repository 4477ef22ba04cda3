"""Draws docs/launch.png: the same operators on cpu and on npu, as they were timed.

    python tools/launch_picture.py [OUT.png]

On cpu each call computes. On npu it queues a task, which the stream's launcher runs
while Python goes on. Kernels have one thread on either device. The fastest of many
rounds is drawn, as the others say more about what else the machine did.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ["NPU_TRACE"] = "1"

import matplotlib as mpl
import torch

from npu_dispatch.observe.trace.trace import of_past

mpl.use("Agg")
import matplotlib.pyplot as plt

OUT = Path(__file__).resolve().parents[1] / "docs" / "launch.png"
LAYERS, WIDTH, BATCH, ROUNDS = 5, 192, 96, 4_000
Bar = tuple[int, int]  # begin and end, nanoseconds of the monotonic clock
COLOURS = ("#3b6ea8", "#7fa8d4")  # of a product, of what follows it


def operators(device: str) -> tuple[list[Callable[..., torch.Tensor]], torch.Tensor]:
    torch.manual_seed(0)
    weights = [torch.randn(WIDTH, WIDTH, device=device) for _ in range(LAYERS)]
    calls: list[Callable[..., torch.Tensor]] = []
    for weight in weights:
        calls += [lambda x, w=weight: x @ w, torch.tanh]
    return calls, torch.randn(BATCH, WIDTH, device=device)


def timed(device: str) -> tuple[list[Bar], int]:
    """Return when Python was inside each call, and when the result was there."""
    calls, x0 = operators(device)
    best: tuple[list[Bar], int] | None = None
    for _ in range(ROUNDS):
        bars, x = [], x0
        if device == "npu":
            torch.npu.synchronize()
        for call in calls:
            begun = time.monotonic_ns()
            x = call(x)
            bars.append((begun, time.monotonic_ns()))
        if device == "npu":
            torch.npu.synchronize()
        ended = time.monotonic_ns()
        if best is None or ended - bars[0][0] < best[1] - best[0][0][0]:
            best = bars, ended
    assert best is not None
    return best


def tasks(begun: int, ended: int) -> list[Bar]:
    """Return when the launcher ran each task that was submitted meanwhile."""
    process = of_past(os.getpid(), 60)
    (track,) = (track for track in process.streams if track.slices)
    return [
        (piece.started, piece.ended)
        for piece in track.slices
        if begun <= piece.submitted <= ended
    ]


def draw(cpu: tuple[list[Bar], int], npu: tuple[list[Bar], int], out: Path) -> None:
    lanes = {
        "cpu\nPython": cpu,
        "npu\nPython": npu,
        "npu\nlauncher": (tasks(npu[0][0][0], npu[1]), npu[1]),
    }
    assert {len(bars) for bars, _ in lanes.values()} == {2 * LAYERS}
    figure, axis = plt.subplots(figsize=(9, 3), layout="constrained")
    for y, (bars, _) in enumerate(lanes.values()):
        zero = (npu if y else cpu)[0][0][0]
        for number, (begun, ended) in enumerate(bars):
            place = ((begun - zero) / 1e3, (ended - begun) / 1e3)
            axis.broken_barh([place], (y - 0.3, 0.6), color=COLOURS[number % 2], lw=0)
            if y != 1:
                axis.text(place[0] + place[1] / 2, y, number + 1, **_INSIDE)
    _explain(axis, cpu, npu)
    axis.set_yticks(range(3), list(lanes))
    axis.invert_yaxis()
    axis.set_xlabel(
        f"microseconds (kernels with one thread, best of {ROUNDS:,} rounds)"
    )
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False)
    figure.savefig(out, dpi=130)


_INSIDE = {"ha": "center", "va": "center", "color": "white", "fontsize": 8}


def _explain(axis: plt.Axes, cpu: tuple[list[Bar], int], npu: tuple[list[Bar], int]):
    free, there = (npu[0][-1][1] - npu[0][0][0]) / 1e3, (npu[1] - npu[0][0][0]) / 1e3
    axis.annotate(
        "",
        (there, 1),
        (free, 1),
        arrowprops={"arrowstyle": "<->", "color": "0.4", "shrinkA": 2, "shrinkB": 2},
    )
    axis.text(
        *((free + there) / 2, 0.9),
        "all ten are queued: Python does other work, or waits for the result",
        ha="center",
        va="bottom",
        fontsize=8,
        color="0.25",
    )
    begins = (tasks(npu[0][0][0], npu[1])[0][0] - npu[0][0][0]) / 1e3
    if begins > 15:
        axis.text(
            *(begins / 2, 2),
            "wakes up",
            ha="center",
            va="center",
            fontsize=8,
            color="0.25",
        )
    last = (cpu[1] - cpu[0][0][0]) / 1e3
    axis.set_xlim(0, 1.1 * max(last, there))
    for y, at in ((0, last), (2, there)):
        axis.text(at, y, "  result", va="center", fontsize=8, color="0.25")


if __name__ == "__main__":
    torch.set_num_threads(1)
    npu = timed("npu")
    draw(timed("cpu"), npu, Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
