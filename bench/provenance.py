"""What finding the Python lines of a launch adds to it.

Every task carries the id of its caller's stack. Two pairs of C calls, of which
one looks the id up and the other does not, alternate in blocks: calls that do
nothing else, and calls that queue a task of 256 bytes. Each pair is measured
below a number of Python functions, as programs call operators: the lookup reads
every frame, up to 32. Which of a pair goes first alternates, too. A block is
shorter than the ring and starts with an idle device.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable

import torch
from _harness import bench, clock, emit

from npu_dispatch import _C

Call = Callable[[], object]
PAIRS: dict[str, tuple[Call, Call]] = {
    "lookup": (_C.current_device, _C.current_call_site),
    "launch": (_C.submit_nothing, _C.submit_with_site),
}
DEPTHS = (1, 4, 16, 32, 64)


def block(call: Call, n: int, depth: int) -> float:
    """Nanoseconds per call, from `depth` functions further down."""
    if depth:
        return block(call, n, depth - 1)
    rounds = range(n)
    for _ in range(2):  # the first fills caches
        began = clock()
        for _ in rounds:
            call()
    return (clock() - began) / n


def added(pair: tuple[Call, Call], n: int, depth: int, repetitions: int) -> list[float]:
    """Return what the second of the pair takes more, each time."""
    differences = []
    for number in range(repetitions):
        times = {}
        for call in pair if number % 2 else reversed(pair):
            times[call] = block(call, n, depth)
            torch.npu.synchronize()
        differences.append(times[pair[1]] - times[pair[0]])
    return differences


@bench(calls=(300, 300, 1), repetitions=(201, 101, 1))
def main(calls: int, repetitions: int) -> None:
    """Print a JSON line per pair and depth."""
    _C.submit_nothing()
    torch.npu.synchronize()
    gc.disable()
    for name, pair in PAIRS.items():
        for depth in DEPTHS:
            values = added(pair, calls, depth, repetitions)
            emit(
                case=f"{name}_at_depth_{depth}",
                added_ns=round(statistics.median(values), 1),
            )


if __name__ == "__main__":
    main()
