"""What keeping trace records adds to a step of the tiny GPT, until retired.

Blocks with and without tracing alternate in one process; nobody copies the
records meanwhile. The switch is the one that `npu-dispatch trace` uses.
"""

from __future__ import annotations

import gc
import os
import statistics

import click
import torch
from _harness import emit, machine, timed_block
from train import CASES

from npu_dispatch.trace_file import TraceFile, trace_path


@click.command()
@click.option("--repetitions", default=30, show_default=True)
@click.option("--only", default="gpt_tiny", show_default=True, help="Case of train.py.")
def main(repetitions: int, only: str) -> None:
    """Print a JSON line."""
    emit(bench="trace", repetitions=repetitions, **machine())
    make, steps = CASES[only]
    step = make("npu")
    with TraceFile(trace_path(os.getpid())) as file:
        blocks: dict[bool, list[float]] = {False: [], True: []}
        gc.disable()
        for repetition in range(repetitions + 3):
            for wanted in (repetition % 2 == 0, repetition % 2 == 1):
                file.wanted = wanted
                for _ in range(2):  # a stream notices with its next tasks
                    step()
                torch.npu.synchronize()
                time = timed_block(step, steps, "npu").total
                if repetition >= 3:
                    blocks[wanted].append(time)
            gc.collect()
        file.wanted = False
        file.read()
        records = sum(ring.read for ring in file.rings.values())
    off, on = (statistics.median(blocks[wanted]) for wanted in (False, True))
    pairs = zip(blocks[True], blocks[False], strict=True)
    emit(
        case=only,
        off_us=round(off, 1),
        on_us=round(on, 1),
        ratio=round(statistics.median(a / b for a, b in pairs), 3),
        records=records,
    )


if __name__ == "__main__":
    main()
