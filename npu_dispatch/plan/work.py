"""What a collective gives where all ranks have the values of this one, and a work that
is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import ReduceOp, Work

from npu_dispatch import npu

__all__ = ["CoalescedWork", "PlannedWork", "copy", "reduce", "split"]

Tensors = list[torch.Tensor]

_NO_TIMEOUT = timedelta(0)


class PlannedWork(Work):
    """A collective whose results are there once `stream` has come so far."""

    def __init__(
        self,
        tensors: Tensors,
        stream: npu.Stream | None = None,
        *,
        host_waits: bool = False,
        source: int = -1,
    ) -> None:
        super().__init__()
        self._tensors = tensors
        self._stream = stream
        self._done = stream.record_event() if stream else None
        self._host_waits = host_waits
        self._source = source

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Let the current stream wait; with a timeout, or for a barrier, the host."""
        if self._done is None:
            return True
        if self._host_waits or timeout > _NO_TIMEOUT:
            self._done.synchronize()
        else:
            self._done.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def is_completed(self) -> bool:
        return self._done is None or self._done.query()

    is_success = is_completed

    def result(self) -> Tensors:
        return self._tensors

    def source_rank(self) -> int:
        return self._source

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[Tensors]:
        """Return a future that has a value; who waits for it waits on a stream."""
        devices = {t.device for t in self._tensors if t.device.type == "npu"}
        future: torch.futures.Future[Tensors] = torch.futures.Future(
            devices=list(devices)
        )
        with self._stream or nullcontext():
            future.set_result(self._tensors)
        return future


class CoalescedWork(Work):
    """Several collectives, which are waited for together."""

    def __init__(self, works: Sequence[PlannedWork]) -> None:
        super().__init__()
        self._works = works

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        for work in self._works:
            work.wait(timeout)
        return True

    def is_completed(self) -> bool:
        return all(work.is_completed() for work in self._works)


def reduce(tensors: Sequence[torch.Tensor], opts: Any, ranks: int) -> None:
    """Reduce each tensor in place; without options it is a sum."""
    op = ReduceOp.SUM if opts is None else opts.reduceOp
    for tensor in tensors:
        if op == ReduceOp.SUM:
            tensor.copy_(tensor * ranks)
        elif op == ReduceOp.PRODUCT:
            tensor.copy_(tensor**ranks)
        elif op == ReduceOp.BXOR and ranks % 2 == 0:
            tensor.zero_()


def copy(outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
    """Copy each input; an output of another size is of ranks that are not alike."""
    for output, given in zip(outputs, inputs, strict=True):
        if output.numel() == given.numel():
            output.copy_(given.reshape(output.shape))
        else:
            output.zero_()


def split(
    tensor: torch.Tensor, sizes: Sequence[int], ranks: int
) -> Sequence[torch.Tensor]:
    """Return the part of each rank; without sizes they are equal."""
    return torch.functional.split(tensor, list(sizes) or [len(tensor) // ranks] * ranks)
