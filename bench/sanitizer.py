"""What the race sanitizer costs: a small MLP step and a loop of small operators.

Upstream's sanitizer is measured on the same loop: its event handler is driven by
its own dispatch mode, with this device in place of cuda's.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack

import torch
from _harness import bench, emit
from _peers import NPU
from steps import training_step
from torch.cuda import _sanitizer as upstream

from npu_dispatch.npu import _sanitizer

LOOP = 200


def small_loop() -> Callable[[], None]:
    x, y = torch.rand(8, 8, device="npu"), torch.rand(8, 8, device="npu")

    def loop() -> None:
        for _ in range(LOOP):
            torch.add(x, y)

    return loop


class UpstreamMode(upstream.TorchDispatchMode):
    """torch.cuda._sanitizer's dispatch mode, for tensors of this device."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = upstream.EventHandler()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        arguments = upstream.ArgumentHandler()
        arguments.parse_inputs(func._schema, args, kwargs, is_factory=False)
        outputs = func(*args, **kwargs)
        arguments.parse_outputs(func._schema, outputs, is_factory=False)
        self.handler._handle_kernel_launch(
            torch.npu.current_stream().stream_id,
            arguments.dataptrs_read - arguments.dataptrs_written,
            arguments.dataptrs_written,
            arguments.outputs,
            func._schema,
            arguments.tensor_aliases,
        )
        return outputs


def timed(step: Callable[[], None], steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.npu.synchronize()
    return time.perf_counter() - start


def measure(make: Callable[[], Callable[[], None]], steps: int, rounds: int) -> dict:
    """Alternate blocks of off and on; return medians, ms per step.

    `ratio` is the median over pairs of neighbouring blocks, and `ratio_of_best`
    compares the fastest block of each.
    """
    step = make()
    off, on = [], []
    for number in range(rounds + 1):
        _sanitizer.disable_npu_sanitizer()
        a = timed(step, steps)
        _sanitizer.enable_npu_sanitizer()
        timed(step, 1)
        b = timed(step, steps)
        if number:  # the first fills caches
            off.append(a)
            on.append(b)
    _sanitizer.disable_npu_sanitizer()
    one, two = (statistics.median(t) * 1e3 / steps for t in (off, on))
    ratios = [b / a for a, b in zip(off, on, strict=True)]
    return {
        "off_ms": round(one, 4),
        "on_ms": round(two, 4),
        "ratio": round(statistics.median(ratios), 2),
        "ratio_of_best": round(min(on) / min(off), 2),
        "kept": rounds,
        "warm_ups": 1,
    }


def measure_upstream(
    make: Callable[[], Callable[[], None]], steps: int, rounds: int
) -> dict:
    step = make()
    # The handler asks for tensors "is_cuda"; ours say is_npu.
    with ExitStack() as stack:
        was = upstream.ArgumentHandler._handle_argument

        def handle(self, value, is_write, metadata_only, name=None, is_output=False):
            if isinstance(value, torch.Tensor) and value.device.type == "npu":
                pointer = value.data_ptr()
                (self.dataptrs_written if is_write else self.dataptrs_read).add(pointer)
                self.tensor_aliases.setdefault(pointer, [])
                if name is not None:
                    self.tensor_aliases[pointer].append(name)
                if is_output:
                    self.outputs.add(pointer)

        upstream.ArgumentHandler._handle_argument = handle
        stack.callback(setattr, upstream.ArgumentHandler, "_handle_argument", was)
        timed(step, 1)
        off = statistics.median(timed(step, steps) for _ in range(rounds))
        with UpstreamMode():
            timed(step, 1)
            on = statistics.median(timed(step, steps) for _ in range(rounds))
    return {
        "off_ms": round(off * 1e3 / steps, 4),
        "on_ms": round(on * 1e3 / steps, 4),
        "ratio": round(on / off, 1),
    }


# case: how to make a step, steps in a block
CASES: dict[str, tuple[Callable[[], Callable[[], None]], int]] = {
    "mlp": (lambda: training_step(NPU, "mlp", "foreach"), 30),
    "loop": (small_loop, 10),
}


@bench(rounds=(31, 11, 1), rounds_of_upstream=(5, 3, 1))
def main(rounds: int, rounds_of_upstream: int) -> None:
    """Print a JSON line per case."""
    for name, (make, steps) in CASES.items():
        found = measure(make, steps, rounds)
        emit(case=name, **found)
    found = measure_upstream(small_loop, 3, rounds_of_upstream)
    emit(case="loop_upstreams_sanitizer", **found)


if __name__ == "__main__":
    main()
