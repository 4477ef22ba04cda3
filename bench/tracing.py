"""What keeping trace records adds to a step of the tiny GPT, until retired.

Blocks with and without tracing alternate in one process; nobody copies the
records meanwhile. The switch is the one that `npu-dispatch trace` uses.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

from _harness import bench, emit
from _peers import NPU, switched
from training import training_step

from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path


@bench(repetitions=(30, 10, 1))
def main(repetitions: int) -> None:
    """Print a JSON line."""
    step = training_step(NPU, "gpt_tiny", "fused")
    gc.disable()
    with TraceFile(trace_path(os.getpid())) as file:

        @contextmanager
        def tracing() -> Iterator[None]:
            file.wanted = True
            yield
            file.wanted = False

        found = switched(step, 5, tracing, repetitions)
        file.read()
        records = sum(ring.read for ring in file.rings.values())
    emit(case="gpt_tiny", **found, records=records)


if __name__ == "__main__":
    main()
