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

__all__ = ["CoalescedWork", "PlannedWork", "alike"]

Tensors = list[torch.Tensor]

_NO_TIMEOUT = timedelta(0)
# Of which each rank gets a part of what each is given.
_OF_PARTS = ("reduce_scatter", "scatter", "all_to_all")


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


@torch.no_grad()
def alike(
    kind: str, results: Tensors, given: Tensors, opts: Any, ranks: int, rank: int
) -> None:
    """Let `rank` of so many have the results; each was given what this one was."""
    flat = torch.cat([tensor.reshape(-1) for tensor in given])
    if kind in _OF_PARTS:
        size = len(flat) // ranks
        flat = flat[rank * size : (rank + 1) * size]
    if opts is not None and opts.reduceOp == ReduceOp.SUM:
        flat = flat * ranks
    elif opts is not None and opts.reduceOp == ReduceOp.PRODUCT:
        flat = flat**ranks
    sizes = [result.numel() for result in results]
    filled = flat.repeat(-(-sum(sizes) // max(len(flat), 1)))[: sum(sizes)]
    for result, values in zip(results, torch.split(filled, sizes), strict=True):
        result.copy_(values.view(result.shape))
