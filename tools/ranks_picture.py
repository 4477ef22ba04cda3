"""Draws docs/distributed_step.png: one step of DDP on two ranks, as it was traced.

    python tools/ranks_picture.py [OUT.png]

Both ranks run on this machine, with one thread for each kernel. The fastest of many
steps is drawn, as the others say more about what else the machine did.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import matplotlib as mpl

from npu_dispatch.observe.trace.job import as_one_job
from npu_dispatch.observe.trace.trace import of_command
from npu_dispatch.observe.trace.tracks import Joins, Process, Slice, StreamTrack

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch

OUT = Path(__file__).resolve().parents[1] / "docs" / "distributed_step.png"
STEPS = 60
COLOURS = {
    "forward": "#7fa8d4",
    "backward": "#3b6ea8",
    "collective": "#d9822b",
    "optimizer": "#9aa5b1",
}
PROGRAM = f"""
import torch, torch.distributed as dist
from torch import nn
dist.init_process_group()
torch.set_num_threads(1)
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(384, 384), nn.ReLU()) for _ in range(6)]
model = nn.parallel.DistributedDataParallel(
    nn.Sequential(*layers).npu(), bucket_cap_mb=0.6, gradient_as_bucket_view=True)
optimizer = torch.optim.SGD(model.parameters(), 0.1, foreach=True)
x = torch.randn(256, 384).npu()
for step in range({STEPS}):
    torch.npu.synchronize()
    dist.barrier()
    with torch.npu.nvtx.range("forward"):
        loss = model(x).square().mean()
    with torch.npu.nvtx.range("backward"):
        loss.backward()
    with torch.npu.nvtx.range("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
torch.npu.synchronize()
dist.destroy_process_group()
"""
Bar = tuple[int, int, str]  # begin, end, what


def work(process: Process) -> list[Slice]:
    return sorted(
        (t for track in process.streams for t in track.slices if t.name != "wait"),
        key=lambda t: t.started,
    )


def steps(process: Process) -> list[tuple[int, int]]:
    """Return when each step began and ended: between two barriers."""
    ends = [t.ended for t in work(process) if t.name == "hccl:barrier"]
    return list(pairwise(ends))


def phase(process: Process, task: Slice) -> str:
    if task.call:
        return "collective"
    for lane in process.lanes:
        if lane.device < 0:
            continue
        for span in lane.spans:
            if span.began <= task.started <= (span.ended or task.started):
                return span.name
    return "backward"  # of what the reducer does between its buckets


def bars(process: Process, track: StreamTrack, begun: int, ended: int) -> Iterator[Bar]:
    for task in track.slices:
        inside = begun <= task.started and task.ended <= ended
        if inside and task.name not in ("wait", "range marker", "hccl:barrier"):
            yield task.started, task.ended, phase(process, task)


def draw(ranks: list[Process], out: Path) -> None:
    both = list(zip(*(steps(p) for p in ranks), strict=True))[STEPS // 4 :]
    # By each rank's own barriers: one may be in the next step already.
    step = min(both, key=lambda each: max(e for _, e in each) - min(b for b, _ in each))
    own = dict(zip((process.pid for process in ranks), step, strict=True))
    found_in = {
        (process.pid, track.device, track.stream): list(
            bars(process, track, *own[process.pid])
        )
        for process in ranks
        for track in process.streams
    }
    begun = min(start for found in found_in.values() for start, *_ in found)
    ended = max(end for found in found_in.values() for _, end, _ in found)
    figure, axis = plt.subplots(figsize=(9, 3.4), layout="constrained")
    names, centres = [], {}
    for process in ranks:
        for track in process.streams:
            found = found_in[process.pid, track.device, track.stream]
            if not found:
                continue
            y = len(names)
            of_group = all(what == "collective" for *_, what in found)
            kind = "collectives" if of_group else "kernels"
            names.append(f"rank {process.rank}\n{kind}")
            for start, end, what in found:
                place = ((start - begun) / 1e6, (end - start) / 1e6)
                axis.broken_barh([place], (y - 0.32, 0.64), color=COLOURS[what], lw=0.3,
                                 edgecolor="white")  # fmt: skip
            for task in track.slices:
                centres[process.pid, track.device, track.stream, task.position] = y
    arrows(axis, ranks, centres, (begun, ended))
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.set_xlim(0, (ended - begun) / 1e6)
    axis.set_xlabel(
        f"milliseconds (one thread a kernel, the fastest of {STEPS} steps); the arrows "
        "lead to the rank that came later"
    )
    patches = [Patch(color=colour, label=what) for what, colour in COLOURS.items()]
    place = {"loc": "upper center", "bbox_to_anchor": (0.5, 1.16)}
    axis.legend(handles=patches, ncols=4, frameon=False, fontsize=9, **place)
    axis.spines[["top", "right", "left"]].set_visible(False)
    axis.tick_params(left=False)
    figure.savefig(out, dpi=130)


def arrows(
    axis: plt.Axes,
    ranks: list[Process],
    centres: dict[tuple[int, int, int, int], int],
    step: tuple[int, int],
) -> None:
    joins, begun = Joins(ranks), step[0]
    ends: dict[int, list[tuple[int, int]]] = {}
    for process in ranks:
        for track in process.streams:
            for task in track.slices:
                place = process.pid, track.device, track.stream, task.position
                inside = begun <= task.started and task.ended <= step[1]
                joined = joins.arrow(place)
                if inside and task.name != "hccl:barrier" and joined:
                    point = task.started, centres[place]
                    ends.setdefault(joined[0], []).append(point)
    for points in ends.values():
        if len(points) != 2:
            continue
        (first, y), (then, other) = sorted(points)
        axis.annotate(
            "",
            ((then - begun) / 1e6, other),
            ((first - begun) / 1e6, y),
            arrowprops={"arrowstyle": "->", "color": "0.25", "lw": 0.8},
        )


if __name__ == "__main__":
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "step.py"
        script.write_text(PROGRAM)
        status, found = of_command([*command, "--standalone", str(script)])
    assert status == 0, "the program failed"
    job, _ = as_one_job(found)
    ranks = [process for process in job if process.rank is not None]
    draw(ranks, Path(sys.argv[1]) if len(sys.argv) > 1 else OUT)
