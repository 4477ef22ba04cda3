"""What keeping trace records adds to a step of the tiny GPT, until retired.

Blocks with and without tracing alternate in one process; nobody copies the
records meanwhile. The switch is the one that `npu-dispatch trace` uses.
"""

from __future__ import annotations

import gc
import os
import statistics

import torch
from _harness import bench, emit
from _peers import NPU, timed_block
from steps import training_step

from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path

WARM_UPS = 3
CASES = {"gpt_tiny": 5}  # model: steps in a block


@bench(repetitions=(30, 10, 1))
def main(repetitions: int, only: str) -> None:
    """Print a JSON line per model."""
    for model, steps in CASES.items():
        if only in model:
            measure(model, steps, repetitions)


def measure(model: str, steps: int, repetitions: int) -> None:
    step = training_step(NPU, model, "fused")
    with TraceFile(trace_path(os.getpid())) as file:
        blocks: dict[bool, list[float]] = {False: [], True: []}
        gc.disable()
        for repetition in range(repetitions + WARM_UPS):
            for wanted in (repetition % 2 == 0, repetition % 2 == 1):
                file.wanted = wanted
                for _ in range(2):  # a stream notices with its next tasks
                    step()
                torch.npu.synchronize()
                time = timed_block(step, steps, "npu").total
                if repetition >= WARM_UPS:
                    blocks[wanted].append(time)
            gc.collect()
        file.wanted = False
        file.read()
        records = sum(ring.read for ring in file.rings.values())
    off, on = (statistics.median(blocks[wanted]) for wanted in (False, True))
    pairs = zip(blocks[True], blocks[False], strict=True)
    emit(
        case=model,
        off_us=round(off, 1),
        on_us=round(on, 1),
        ratio=round(statistics.median(a / b for a, b in pairs), 3),
        records=records,
        kept=repetitions,
        warm_ups=WARM_UPS,
    )


if __name__ == "__main__":
    main()
