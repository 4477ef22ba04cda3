"""How Python functions get into a stream's queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from npu_dispatch import _C

__all__ = ["submit"]


def submit(
    stream: torch.Stream,
    fn: Callable[..., object],
    tensors: Sequence[torch.Tensor],
    writes: Sequence[torch.Tensor] | None,
    name: str | None,
) -> None:
    """Queue fn(*views); see Stream.submit()."""
    if not callable(fn):
        raise TypeError(f"submit() needs a function, but got {type(fn).__name__}")
    for i, tensor in enumerate(tensors):
        _check(stream, i, tensor)
    changed = {id(t) for t in (tensors if writes is None else writes)}
    if unknown := changed - {id(t) for t in tensors}:
        raise ValueError(
            f"writes names {len(unknown)} tensor(s) that fn is not given: list "
            "them among the tensors too"
        )
    for tensor in tensors:
        if tensor.device.type == "npu":
            tensor.record_stream(stream)
            if id(tensor) in changed and not tensor.is_inference():
                # This tells autograd if a tensor that it has saved is overwritten.
                torch.autograd.graph.increment_version(tensor)
    _C.submit(
        stream.device_index,
        stream.stream_id,
        fn,
        name or getattr(fn, "__qualname__", None) or type(fn).__name__,
        list(tensors),
        [id(t) in changed for t in tensors],
    )


def _check(stream: torch.Stream, i: int, tensor: torch.Tensor) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(
            f"submit() passes tensors on, but argument {i} is a "
            f"{type(tensor).__name__}; bind other values with functools.partial"
        )
    if tensor.layout != torch.strided:
        raise TypeError(
            f"submit() passes strided tensors on, but argument {i} has layout "
            f"{tensor.layout}; pass its parts, such as values()"
        )
    here = torch.device("npu", stream.device_index)
    if tensor.device not in (here, torch.device("cpu")):
        raise ValueError(
            f"argument {i} is on {tensor.device}, but the stream is of {here}"
        )
