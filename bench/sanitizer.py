"""What the race sanitizer costs: a small MLP step and a loop of small operators.

Upstream's sanitizer is measured on the same loop: its event handler is driven by
its own dispatch mode, with this device in place of cuda's.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from _harness import bench, emit
from _peers import NPU, switched
from torch.cuda import _sanitizer as upstream
from training import training_step

from npu_dispatch.npu import _sanitizer

LOOP = 200
x, y = torch.rand(8, 8, device="npu"), torch.rand(8, 8, device="npu")


def loop() -> None:
    for _ in range(LOOP):
        torch.add(x, y)


@contextmanager
def ours() -> Iterator[None]:
    _sanitizer.enable_npu_sanitizer()
    yield
    _sanitizer.disable_npu_sanitizer()


class UpstreamArguments(upstream.ArgumentHandler):
    """The handler asks for tensors "is_cuda"; ours say is_npu."""

    def _handle_argument(
        self,
        value: Any,
        is_write: bool,
        metadata_only: bool,
        name: str | None = None,
        is_output: bool = False,
    ) -> None:
        if isinstance(value, torch.Tensor) and value.device.type == "npu":
            pointer = value.data_ptr()
            (self.dataptrs_written if is_write else self.dataptrs_read).add(pointer)
            self.tensor_aliases.setdefault(pointer, [])
            if name is not None:
                self.tensor_aliases[pointer].append(name)
            if is_output:
                self.outputs.add(pointer)


class UpstreamMode(upstream.TorchDispatchMode):
    """torch.cuda._sanitizer's dispatch mode, for tensors of this device."""

    def __init__(self) -> None:
        super().__init__()
        self.handler = upstream.EventHandler()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        arguments = UpstreamArguments()
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


@bench(rounds=(31, 11, 1), rounds_of_upstream=(5, 3, 1))
def main(rounds: int, rounds_of_upstream: int) -> None:
    """Print a JSON line per case."""
    gc.disable()
    step, mode = training_step(NPU, "mlp", "foreach"), UpstreamMode()
    emit(case="mlp", **switched(step, 30, ours, rounds))
    emit(case="loop", **switched(loop, 10, ours, rounds))
    found = switched(loop, 3, lambda: mode, rounds_of_upstream)
    emit(case="loop_upstreams_sanitizer", **found)


if __name__ == "__main__":
    main()
