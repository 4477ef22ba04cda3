"""Calls that cpu refuses, and what the device is to do with them.

A call that is wrong whatever its tensors hold is refused at the call. What only
the kernel can know, such as an index that is out of range, may be told later, by
an error that is of cpu's kind, too.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.conformance.calls import CPU, Call, attempt, tensors_in

# At most so many calls of an operator are made of its samples.
MOST = 200
# cpu does not look at the sizes of running statistics and pivots, nor at the values of
# offsets, and reads behind their end.
UNGUARDED = {
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "_segment_reduce.offsets",
    "lu_unpack",
    "native_batch_norm",
    "nn.functional.embedding_bag",
}
# Filling tensors proves nothing: lengths of one number each do not add up to the
# other argument's size, and some indices are lists of Python's numbers.
OF_VALUES = {"_segment_reduce.lengths", "__getitem__"}

Change = Callable[[Tensor], Tensor]


def wrong_samples(op: OpInfo, samples: list[SampleInput]) -> Iterator[SampleInput]:
    """Yield the calls that OpInfo knows to be wrong, and others that may be.

    The others are the samples with one tensor's size, rank or dtype changed.
    """
    if op.error_inputs_func:
        for wrong in op.error_inputs("cpu"):
            if isinstance(wrong.sample_input, SampleInput):
                yield wrong.sample_input
    if op.full_name not in UNGUARDED:
        yield from itertools.islice(
            (_changed(s, i, c) for s in samples for i, c in _changes(s)), MOST
        )


def _changes(sample: SampleInput) -> Iterator[tuple[int, Change]]:
    tensors = tensors_in([sample.input, sample.args, sample.kwargs])
    for i, tensor in enumerate(tensors):
        if tensor.layout != torch.strided or tensor.numel() > 100_000:
            continue
        for dim in range(tensor.dim()):
            yield i, lambda t, dim=dim: torch.cat([t, t.narrow(dim, 0, 1)], dim)
            yield i, lambda t, dim=dim: t.narrow(dim, 0, t.size(dim) - 1)
        yield i, lambda t: t[None]
        if tensor.dim():
            yield i, lambda t: t[0]
        for dtype in (torch.int64, torch.float64, torch.bool):
            if dtype != tensor.dtype:
                yield i, lambda t, dtype=dtype: t.to(dtype)


def _changed(sample: SampleInput, which: int, change: Change) -> SampleInput:
    """Return the sample with one tensor changed where that is possible."""
    place = itertools.count()

    def visit(x: Any) -> Any:
        if not isinstance(x, Tensor) or next(place) != which:
            return x
        try:
            return change(x.detach()).clone()
        except (RuntimeError, IndexError):  # There is no element to add or take.
            return x

    return sample.transform(visit)


def same_error(
    name: str, call: Call, raised: Exception, failure: Exception | None
) -> str:
    """Return what is wrong with the device's failure of a call; "" where nothing is."""
    if type(failure) is type(raised):
        return ""
    if failure is None and "not implemented for" in str(raised):
        return ""  # A dtype that CUDA has, too: cuda_dtypes.py compares it.
    late = isinstance(failure, torch.AcceleratorError)
    told = f"{type(raised).__name__}: {raised}"
    if not late or not isinstance(failure, type(raised)):
        got = f"{type(failure).__name__} ({failure})" if failure else "no error"
        return f"{got} instead of cpu's {told}"
    if name in OF_VALUES or not _always_refused(call):
        return ""
    return f"late, though the arguments' sizes and dtypes alone are wrong: {told}"


def _always_refused(call: Call) -> bool:
    """Return whether cpu refuses the call whatever is in its tensors."""

    def filled(value: int) -> Call:
        def fill(x: Any) -> Any:
            if isinstance(x, Tensor):
                # A backward pass fails where nothing asks for it.
                filled = torch.full_like(x.detach(), value)
                return filled.requires_grad_(x.requires_grad)
            return type(x)(map(fill, x)) if type(x) in (list, tuple) else x

        return replace(call, sample=call.sample.transform(fill))

    return all(attempt(filled(value), CPU)[1] is not None for value in (0, 1))
