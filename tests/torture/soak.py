"""Real operators for a long time: nothing grows, and the sums are right.

`python -m tests.torture.soak --seconds 60`; prints JSON. Dynamic shapes, streams
made and dropped, graphs, errors, the sanitizer on for every fourth round.
"""

import gc
import os
import random
import time
from pathlib import Path
from typing import Any

import torch

from npu_dispatch import _C
from npu_dispatch.observe.segment import StatsReader
from tests.torture import part

ROUND = 4000
RING = 8192  # slots


def footprint() -> dict[str, int]:
    gc.collect()
    torch.npu.synchronize()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss": pages * os.sysconf("SC_PAGE_SIZE"),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "segment": Path(_C.segment_path()).stat().st_size,
        "allocated": torch.npu.memory_allocated(),
    }


def tasks() -> tuple[int, int]:
    """Return what was submitted to all streams, and what has retired."""
    with StatsReader(Path(_C.segment_path())) as reader:
        streams = reader.streams()
    return sum(s.submitted for s in streams), sum(s.retired for s in streams)


def one_round(rng: random.Random) -> str:
    """Do some thousand operators; return what was wrong."""
    total = torch.zeros(16, dtype=torch.float64, device="npu")
    stream = torch.npu.Stream()
    n = rng.randrange(1, 3000)
    x = torch.ones(n, device="npu")
    wanted = ROUND // 4
    for i in range(ROUND // 4):
        total.add_(1)
        # No two of one length are alike: one that is read too early, from memory
        # of the one before, gives another sum.
        y = x * 2 if i % 5 else torch.cat([x, x[: n // 2] * (i + 1)])
        if i % 50 == 0:
            stream.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(stream):
                z = y.sum() + i
            y.record_stream(stream)
            torch.npu.current_stream().wait_stream(stream)
            total.add_(z)
            wanted += n + n // 2 * (i + 1) + i
    if float(y.sum()) != 2 * n and y.numel() == n:
        return f"{float(y.sum())} and not {2 * n}"
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for _ in range(20):
            total.add_(1)
    for _ in range(ROUND // 40):
        graph.replay()
    wanted += 20 * (ROUND // 40)
    if total.tolist() != [wanted] * 16:
        return f"{total.tolist()[0]} and not {wanted}"
    return ""


def fill_rings() -> None:
    """Write to every slot of every pooled stream's ring, which takes its memory."""
    x = torch.zeros(16, device="npu")
    streams = {torch.npu.Stream() for _ in range(64)} | {torch.npu.current_stream()}
    for stream in streams:
        with torch.npu.stream(stream):
            for _ in range(RING):
                x.add_(1)
    torch.npu.synchronize()


def campaign(seconds: float, seed: int) -> dict[str, Any]:
    from npu_dispatch.npu import _sanitizer

    rng = random.Random(seed)
    bad: list[str] = []
    fill_rings()
    end = time.monotonic() + seconds
    rounds, warm = 0, {}
    while time.monotonic() < end or rounds < 9:
        watched = rounds % 4 == 3
        if watched:
            _sanitizer.enable_npu_sanitizer()
        if wrong := one_round(rng):
            bad.append(f"round {rounds}: {wrong}")
        if watched:
            bad += [report.text() for report in _sanitizer.reports()]
            _sanitizer.disable_npu_sanitizer()
        rounds += 1
        if rounds == 8:
            warm = footprint()
    last = footprint()
    submitted, retired = tasks()
    if submitted != retired:
        bad.append(f"{submitted - retired} tasks are lost")
    # Replays are one task each, of twenty operators.
    operators = submitted + rounds * 19 * (ROUND // 40)
    for name in ("descriptors", "threads", "segment", "allocated"):
        if last[name] > warm[name]:
            bad.append(f"{name} grew from {warm[name]} to {last[name]}")
    if last["rss"] > 1.2 * warm["rss"]:
        bad.append(f"rss grew from {warm['rss']} to {last['rss']}")
    return {
        "seed": seed,
        "rounds": rounds,
        "operators": operators,
        "rss_mb": [round(w["rss"] / 1e6, 1) for w in (warm, last)],
        "threads": last["threads"],
        "bad": bad,
    }


if __name__ == "__main__":
    part.main(__doc__, lambda asked: campaign(asked.seconds, asked.seed))
