"""Collectives of one process over several devices, as torch.cuda.comm has them.

Each copy goes through the current stream of its destination, which first waits
for the current stream of its source; no call waits on the host. torch's own
torch.nn.parallel.comm, and with it nn.DataParallel, call the same functions
(patches/training.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format
from torch._utils import (
    _flatten_dense_tensors,
    _reorder_tensors_as,
    _take_tensors,
    _unflatten_dense_tensors,
)
from torch.nn.parallel import comm as parallel_comm

from npu_dispatch import _C
from npu_dispatch.npu.runtime.devices import Device, _checked, _get_device_index, is_npu
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.streams import current_stream, stream as on_stream

__all__ = [
    "broadcast",
    "broadcast_coalesced",
    "gather",
    "reduce_add",
    "reduce_add_coalesced",
    "scatter",
]

Tensor = torch.Tensor

# torch's own, whatever its module's name means later.
_reduce_coalesced: Any = parallel_comm.reduce_add_coalesced


def _indices(devices: Iterable[Device]) -> list[int]:
    _lazy_init()
    found = [_get_device_index(device) for device in devices]
    if not found:
        raise RuntimeError("expected at least one device, but got none")
    return [_checked(index, kind=RuntimeError) for index in found]


def _copy(source: Tensor, target: Tensor) -> Tensor:
    """Copy in the order of both current streams, without a host wait."""
    if is_npu(source) and is_npu(target) and source.device != target.device:
        there = current_stream(target.device)
        there.wait_stream(current_stream(source.device))
        with on_stream(there):
            target.copy_(source, non_blocking=True)
        source.record_stream(there)
        return target
    return target.copy_(source, non_blocking=is_npu(source) and is_npu(target))


def _to(source: Tensor, index: int) -> Tensor:
    """Return `source` itself if it is on that device, else a copy."""
    if is_npu(source) and source.get_device() == index:
        return source
    device = torch.device("npu", index) if index >= 0 else torch.device("cpu")
    if source.is_sparse:
        return source.to(device)
    return _copy(source, torch.empty_like(source, device=device))


def _real(tensor: Tensor) -> Tensor:
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def _broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    if is_npu(tensor) and devices[0] != tensor.get_device():
        raise RuntimeError(
            f"device of broadcasted tensor must appear as the first of the "
            f"devices: expected npu:{tensor.get_device()}, got npu:{devices[0]}"
        )
    return [_to(tensor, index) for index in devices]


def _broadcast_out(tensor: Tensor, out: Sequence[Tensor]) -> list[Tensor]:
    for i, target in enumerate(out):
        if not is_npu(target):
            raise RuntimeError(f"expected all of out on npu, but out[{i}] is not")
        if target.shape != tensor.shape:
            raise RuntimeError(
                f"expected out[{i}] of shape {tuple(tensor.shape)}, but got "
                f"{tuple(target.shape)}"
            )
    return [_copy(tensor, target) for target in out]


def broadcast(
    tensor: Tensor,
    devices: Iterable[Device] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Return copies of `tensor` on all `devices`, or fill the tensors `out`.

    The first device must be the tensor's own, unless that is the CPU. Raises
    RuntimeError unless exactly one of `devices` and `out` is given, and where shapes
    differ. A complex tensor arrives as pairs of real numbers.
    """
    tensor = _real(tensor)
    if (devices is None) == (out is None):
        raise RuntimeError(
            "Exactly one of 'devices' and 'out' must be specified, but got "
            f"devices={devices} and out={out}"
        )
    if devices is not None:
        return tuple(_broadcast(tensor, _indices(devices)))
    assert out is not None
    return tuple(_broadcast_out(tensor, out))


def broadcast_coalesced(
    tensors: Iterable[Tensor], devices: Iterable[Device], buffer_size: int = 10485760
) -> tuple[list[Tensor], ...]:
    """Return a list of copies per device; small tensors travel together.

    At most `buffer_size` bytes travel at once. The first device must be the tensors'
    own.
    """
    return _broadcast_coalesced(
        [_real(t) for t in tensors], _indices(devices), buffer_size
    )


def _broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int
) -> tuple[list[Tensor], ...]:
    for tensor in tensors:
        if is_npu(tensor) and tensor.get_device() != devices[0]:
            raise RuntimeError(
                f"all tensors must be on devices[0]: npu:{devices[0]}, but one "
                f"is on {tensor.device}"
            )
    results: list[list[Tensor]] = [list(tensors)]
    if tensors and not is_npu(tensors[0]):
        results[0] = [_to(t, devices[0]) for t in tensors]
    for index in devices[1:]:
        copies: list[Tensor] = []
        for chunk in _take_tensors(results[0], buffer_size):  # type: ignore[no-untyped-call]
            if chunk[0].is_sparse:
                copies += [_to(t, index) for t in chunk]
                continue
            flat = _to(_flatten_dense_tensors(chunk), index)  # type: ignore[no-untyped-call]
            with torch.device("npu", index), torch.no_grad():
                # Each result counts its own versions, as users write them one by one.
                copies += [
                    piece.data
                    for piece in _unflatten_dense_tensors(flat, chunk)  # type: ignore[no-untyped-call]
                ]
        results.append(list(_reorder_tensors_as(copies, results[0])))  # type: ignore[no-untyped-call]
    return tuple(results)


def reduce_add(inputs: Sequence[Tensor], destination: Device = None) -> Tensor:
    """Return the sum of tensors of one shape, on `destination`.

    `destination` is the current device by default. Raises RuntimeError if no input
    is there, AssertionError for an input on the CPU, and ValueError for sizes that
    differ. A single input is returned as it is.
    """
    _lazy_init()
    target = _get_device_index(destination, optional=True)
    root = None
    for i, tensor in enumerate(inputs):
        if tensor.device.type == "cpu":
            raise AssertionError(
                f"reduce_add expects all inputs to be on npu, but input {i} is on CPU"
            )
        if tensor.get_device() == target:
            root = i
        if tensor.size() != inputs[0].size():
            got, expected = ("x".join(map(str, t.size())) for t in (tensor, inputs[0]))
            raise ValueError(
                f"input {i} has invalid size: got {got}, but expected {expected}"
            )
    if root is None:
        raise RuntimeError(
            "reduce_add expects destination to be on the same device as one of "
            f"the tensors, but none is on npu:{target}"
        )
    if len(inputs) == 1:
        return inputs[0]
    others = [_to(t, target) for i, t in enumerate(inputs) if i != root]
    with on_stream(current_stream(target)):
        result = inputs[root] + others[0]
        for other in others[1:]:
            result.add_(other)
    return result


def reduce_add_coalesced(
    inputs: Iterable[Iterable[Tensor]],
    destination: Device = None,
    buffer_size: int = 10485760,
) -> tuple[Tensor, ...]:
    """Return the sums over devices of each tensor; small ones travel together.

    `inputs` has a list of tensors for each device. At most `buffer_size` bytes travel
    at once.
    """
    _lazy_init()
    index = _get_device_index(destination, optional=True)
    sums: tuple[Tensor, ...] = _reduce_coalesced(list(inputs), index, buffer_size)
    return sums


def _scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> list[Tensor]:
    if chunk_sizes is not None:
        if len(chunk_sizes) != len(devices):
            raise RuntimeError(
                f"Expected devices and chunk_sizes to be of same length, but got "
                f"len(devices) = {len(devices)} and len(chunk_sizes) = "
                f"{len(chunk_sizes)}"
            )
        pieces = tensor.split_with_sizes(list(chunk_sizes), dim)
    else:
        pieces = tensor.chunk(len(devices), dim)
    results = []
    for i, (piece, index) in enumerate(zip(pieces, devices, strict=False)):
        if index < 0:
            raise RuntimeError("Expected non-negative device indices")
        with on_stream(streams[i] if streams is not None else None):
            results.append(_to(piece, index))
    return results


def _scatter_out(
    tensor: Tensor,
    out: Sequence[Tensor],
    dim: int,
    streams: Sequence[torch.Stream | None] | None,
) -> Sequence[Tensor]:
    if not out:
        raise RuntimeError("Expected at least one output tensor to scatter to")
    for i, target in enumerate(out):
        expected = list(tensor.shape)
        expected[dim] = target.shape[dim]
        if not is_npu(target) or list(target.shape) != expected:
            raise RuntimeError(
                f"expected out[{i}] on npu and of shape {expected}, but it is on "
                f"{target.device} and has {list(target.shape)}"
            )
    sizes = [target.shape[dim] for target in out]
    if sum(sizes) != tensor.shape[dim]:
        raise RuntimeError(
            f"expected the sizes of out to add up to {tensor.shape[dim]} along "
            f"dimension {dim}, but got {sizes}"
        )
    for i, piece in enumerate(tensor.split_with_sizes(sizes, dim)):
        with on_stream(streams[i] if streams is not None else None):
            _copy(piece, out[i])
    return out


def scatter(
    tensor: Tensor,
    devices: Iterable[Device] | None = None,
    chunk_sizes: Sequence[int] | None = None,
    dim: int = 0,
    streams: Sequence[torch.Stream | None] | None = None,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]:
    """Return the parts of `tensor` along `dim`, one per device.

    `chunk_sizes` has one size per device; by default the parts are equal. `streams`
    are those on which the parts are copied. With `out`, its tensors are filled, which
    says the sizes too; `devices` or `chunk_sizes` beside it raise RuntimeError.
    """
    tensor = _real(tensor)
    if out is None:
        if devices is None:
            raise RuntimeError("Exactly one of 'devices' and 'out' must be specified")
        return tuple(_scatter(tensor, _indices(devices), chunk_sizes, dim, streams))
    for name, value in (("devices", devices), ("chunk_sizes", chunk_sizes)):
        if value is not None:
            raise RuntimeError(
                f"'{name}' must not be specified when 'out' is specified, but got "
                f"{name}={value}"
            )
    return tuple(_scatter_out(tensor, out, dim, streams))


def _check_parts(tensors: Sequence[Tensor], dim: int) -> list[int]:
    """Return the shape of the tensors put together along `dim`."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    first = tensors[0]
    axis = dim if dim >= 0 else dim + first.dim()
    shape = list(first.shape)
    if not 0 <= axis < max(first.dim(), 1) or not shape:
        raise RuntimeError(f"cannot gather {first.dim()}-d tensors along {dim}")
    shape[axis] = 0
    for i, tensor in enumerate(tensors):
        if not is_npu(tensor):
            raise RuntimeError(f"expected all inputs on npu, but input {i} is not")
        rest = list(tensor.shape)
        total = rest[axis] if len(rest) > axis else 0
        if len(rest) == len(shape):
            rest[axis] = shape[axis]
        if rest != shape:
            raise RuntimeError(
                f"input {i} has shape {list(tensor.shape)}, which differs from "
                f"{list(first.shape)} in another dimension than {dim}"
            )
        shape[axis] += total
    return shape


def _gather_out(tensors: Sequence[Tensor], out: Tensor, dim: int) -> Tensor:
    shape = _check_parts(tensors, dim)
    if list(out.shape) != shape:
        raise RuntimeError(f"expected out of shape {shape}, but got {list(out.shape)}")
    sizes = [tensor.shape[dim] for tensor in tensors]
    with torch.no_grad():
        for part, tensor in zip(out.split_with_sizes(sizes, dim), tensors, strict=True):
            _copy(tensor, part)
    return out


def _gather(tensors: Sequence[Tensor], dim: int, destination: int | None) -> Tensor:
    shape = _check_parts(tensors, dim)
    if destination is None:
        destination = _C.current_device()
    device = torch.device("npu", destination) if destination >= 0 else "cpu"
    formats = {suggest_memory_format(tensor) for tensor in tensors}
    out = torch.empty(
        shape,
        dtype=tensors[0].dtype,
        device=device,
        # The memory format of the parts, if they agree on one.
        memory_format=formats.pop() if len(formats) == 1 else torch.contiguous_format,
    )
    return _gather_out(tensors, out, dim)


def gather(
    tensors: Iterable[Tensor],
    dim: int = 0,
    destination: Device = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Return tensors of several devices put together along `dim`.

    `destination` is the current device by default; "cpu", or -1 with a FutureWarning,
    is the host. With `out`, that tensor is filled. Raises RuntimeError for a
    `destination` beside `out`, and for shapes that do not fit.
    """
    _lazy_init()
    parts = [_real(tensor) for tensor in tensors]
    if out is not None:
        if destination is not None:
            raise RuntimeError(
                "'destination' must not be specified when 'out' is specified, but "
                f"got destination={destination}"
            )
        return _gather_out(parts, out, dim)
    if destination == -1:
        warnings.warn(
            "-1 for the CPU is deprecated: use 'cpu'", FutureWarning, stacklevel=2
        )
    index = _get_device_index(destination, optional=True, allow_cpu=True)
    return _gather(parts, dim, index)
