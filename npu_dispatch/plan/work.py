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

__all__ = ["PlannedWork", "alike"]

Tensors = list[torch.Tensor]

_NO_TIMEOUT = timedelta(0)
# Of which each rank gets a part of what each is given.
_OF_PARTS = ("reduce_scatter", "scatter", "all_to_all")


class PlannedWork(Work):
    """Collectives whose results are there once the events of `done` are."""

    def __init__(
        self,
        tensors: Tensors,
        done: Sequence[npu.Event] = (),
        *,
        stream: npu.Stream | None = None,
        host_waits: bool = False,
        source: int = -1,
    ) -> None:
        super().__init__()
        self._tensors = tensors
        self._stream = stream
        self._done = done
        self._host_waits = host_waits
        self._source = source

    def wait(self, timeout: timedelta = _NO_TIMEOUT) -> bool:
        """Let the current stream wait; with a timeout, or for a barrier, the host."""
        for event in self._done:
            if self._host_waits or timeout > _NO_TIMEOUT:
                event.synchronize()
            else:
                event.wait()
        return True

    def synchronize(self) -> None:
        self.wait()

    block_current_stream = synchronize

    def is_completed(self) -> bool:
        return all(event.query() for event in self._done)

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
        if self._stream is None:
            self.wait()
        with self._stream or nullcontext():
            future.set_result(self._tensors)
        return future


@torch.no_grad()
def alike(
    kind: str, results: Tensors, given: Tensors, opts: Any, ranks: int, rank: int
) -> None:
    """Let `rank` of so many have the results; each was given what this one was."""
    flat = torch.cat([tensor.reshape(-1) for tensor in given])
    if kind in _OF_PARTS:
        size = len(flat) // ranks
        flat = flat[rank * size : (rank + 1) * size]
    reduction = getattr(opts, "reduceOp", None)
    if reduction == ReduceOp.SUM:
        flat = flat * ranks
    elif reduction == ReduceOp.PRODUCT:
        flat = flat**ranks
    sizes = [result.numel() for result in results]
    filled = flat.repeat(-(-sum(sizes) // max(len(flat), 1)))[: sum(sizes)]
    for result, values in zip(results, torch.split(filled, sizes), strict=True):
        result.copy_(values.view(result.shape))
