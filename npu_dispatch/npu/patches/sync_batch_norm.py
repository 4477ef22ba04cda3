"""The steps of nn.SyncBatchNorm, which torch has for its own accelerators only.

They are composed of other operators. Statistics are at least float32, as on CUDA.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from npu_dispatch import _C
from npu_dispatch.npu.patches.changes import change, replaces

_library: Any = None  # the kernels are taken back when it goes


def _wide(t: Tensor) -> torch.dtype:
    return torch.float64 if t.dtype == torch.float64 else torch.float32


def _reduced(t: Tensor) -> list[int]:
    """Return all dimensions but that of the channels."""
    return [dim for dim in range(t.dim()) if dim != 1]


def _per_channel(values: Tensor, like: Tensor) -> Tensor:
    """Give one value per channel a shape that broadcasts against `like`."""
    if like.dim() < 2:
        raise RuntimeError(
            "Expected an input with a dimension of channels behind that of the batch, "
            f"but got shape {list(like.shape)}"
        )
    return values.reshape([-1 if dim == 1 else 1 for dim in range(like.dim())])


def _stats(input: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    x = input.to(_wide(input))
    variance, mean = torch.var_mean(x, _reduced(input), correction=0)
    return mean, variance.add_(eps).rsqrt_()


def _elements(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    eps: float,
) -> Tensor:
    scale = invstd if weight is None else invstd * weight.to(invstd.dtype)
    y = input.to(_wide(input)).sub(_per_channel(mean, input))
    y.mul_(_per_channel(scale, input))
    if bias is not None:
        y.add_(_per_channel(bias, input))
    return y.to(input.dtype)


def _elements_out(*args: Any, out: Tensor) -> Tensor:
    return out.copy_(_elements(*args))


def _update(running: Tensor | None, value: Tensor, momentum: float) -> None:
    if running is not None:
        running.mul_(1 - momentum).add_(value.to(running.dtype), alpha=momentum)


def _gather_with_counts(
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
    counts: Tensor,
) -> tuple[Tensor, Tensor]:
    """Combine means and deviations of several processes, of so many elements each."""
    n = counts.to(mean.dtype).reshape(-1, 1)
    total = n.sum()
    all_mean = mean.mul(n).sum(0).div_(total)
    squares = invstd.pow(-2).sub_(eps).add_((mean - all_mean).square())
    deviations = squares.mul(n).sum(0)
    _update(running_mean, all_mean, momentum)
    _update(running_var, deviations / (total - 1), momentum)
    return all_mean, deviations.div(total).add_(eps).rsqrt_()


def _gather(*args: Any) -> tuple[Tensor, Tensor]:
    """Do the same where each process had the same number, the last argument."""
    same: list[Any] = list(args)
    count = same.pop()
    mean: Tensor = args[1]
    same.append(mean.new_full((mean.size(0),), count))
    return _gather_with_counts(*same)


def _backward_reduce(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    input_grad: bool,
    weight_grad: bool,
    bias_grad: bool,
) -> tuple[Tensor | None, ...]:
    """Return the sums that the processes add up, and gradients of weight and bias."""
    wide, dims = _wide(input), _reduced(input)
    dy = grad.to(wide)
    total = dy.sum(dims)
    total_xmu = input.to(wide).sub(_per_channel(mean, input)).mul_(dy).sum(dims)
    of_weight = wide if weight is None else weight.dtype
    return (
        total if input_grad else None,
        total_xmu if input_grad else None,
        total_xmu.mul(invstd).to(of_weight) if weight_grad else None,
        total.to(of_weight, copy=True) if bias_grad else None,
    )


def _backward_elements(
    grad: Tensor,
    input: Tensor,
    mean: Tensor,
    invstd: Tensor,
    weight: Tensor | None,
    sum_dy: Tensor,
    sum_dy_xmu: Tensor,
    count: Tensor,
) -> Tensor:
    wide = _wide(input)
    total = count.sum().to(wide)
    slope = sum_dy_xmu / total * invstd.square()
    scale = invstd if weight is None else invstd * weight.to(wide)
    x = input.to(wide).sub(_per_channel(mean, input))
    x.mul_(_per_channel(slope, input)).neg_().add_(grad.to(wide))
    x.sub_(_per_channel(sum_dy / total, input)).mul_(_per_channel(scale, input))
    return x.to(input.dtype)


_KERNELS: dict[str, Callable[..., Any]] = {
    "batch_norm_stats": _stats,
    "batch_norm_elemt": _elements,
    "batch_norm_elemt.out": _elements_out,
    "batch_norm_gather_stats": _gather,
    "batch_norm_gather_stats_with_counts": _gather_with_counts,
    "batch_norm_backward_reduce": _backward_reduce,
    "batch_norm_backward_elemt": _backward_elements,
}


@change
def compose_sync_batch_norm() -> None:
    """Give torch these kernels for npu."""
    global _library
    library: Any = torch.library.Library
    _library = library("aten", "IMPL")
    for name, kernel in _KERNELS.items():
        _library.impl(name, kernel, "PrivateUse1")


class _EveryRank(TorchFunctionMode):
    """Keeps the statistics that a mask would choose from."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        masks = func is Tensor.__getitem__ and isinstance(args[1], Tensor)
        if masks and args[1].dtype == torch.bool:
            return args[0]
        return func(*args, **kwargs or {})


@replaces("torch.nn.modules._functions:SyncBatchNorm.forward")
def capture_statistics(forward: Any, ctx: Any, input: Tensor, *args: Any) -> Any:
    """Let a capture keep the statistics of all ranks, as torch does for CUDA.

    Else torch drops those of empty inputs, for which it reads the counts on the host.
    """
    on_npu = input.device.type == "npu" and not torch.compiler.is_compiling()
    if not on_npu or not _C.is_capturing():
        return forward(ctx, input, *args)
    with _EveryRank():
        return forward(ctx, input, *args)
