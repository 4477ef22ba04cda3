"""What collectives give where all ranks have the values of this one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

__all__ = ["copy", "reduce", "split"]


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
