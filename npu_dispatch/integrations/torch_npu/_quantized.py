"""Numbers in eight bits: to them, and products of them."""

from __future__ import annotations

import torch
from torch import Tensor

from npu_dispatch.integrations.torch_npu._operators import operator, refuse

_STORED = {
    torch.qint8: torch.int8,
    torch.quint8: torch.uint8,
    torch.qint32: torch.int32,
    torch.int8: torch.int8,
    torch.uint8: torch.uint8,
    torch.int32: torch.int32,
}


@operator
def npu_quantize(
    self: Tensor,
    scales: Tensor,
    zero_points: Tensor | None,
    dtype: torch.dtype,
    axis: int = 1,
    div_mode: bool = True,
) -> Tensor:
    """Return x / scales + zero_points, or with div_mode=False x * scales + zero_points.

    axis: which dimension scales and zero_points are along; without div_mode it is -2,
    or else the last.
    """
    refuse("npu_quantize", dtype=None if dtype in _STORED else dtype)
    if not div_mode:
        axis = -2 if axis == -2 else -1
    shape = [1] * self.dim()
    shape[axis] = -1
    scales = scales.view(shape) if scales.dim() == 1 else scales
    found = self.float() / scales if div_mode else self.float() * scales
    if zero_points is not None:
        zero = zero_points.view(shape) if zero_points.dim() == 1 else zero_points
        found = found.round() + zero if div_mode else found + zero
    return _rounded(found, _STORED[dtype])


@operator
def npu_dynamic_quant(
    input: Tensor,
    *,
    smooth_scales: Tensor | None = None,
    group_index: Tensor | None = None,
    dst_type: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:
    """Return rows as int8, and the scale of each: its largest absolute value / 127."""
    refuse(
        "npu_dynamic_quant",
        group_index=group_index,
        dst_type=None if dst_type == torch.int8 else dst_type,
    )
    wide = input.float()
    wide = wide if smooth_scales is None else wide * smooth_scales.float()
    scale = wide.abs().amax(-1) / 127
    nonzero = scale.masked_fill(scale == 0, 1)
    return _rounded(wide / nonzero[..., None], torch.int8), scale


@operator
def npu_quant_matmul(
    x1: Tensor,
    x2: Tensor,
    scale: Tensor,
    *,
    offset: Tensor | None = None,
    pertoken_scale: Tensor | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = None,
) -> Tensor:
    """Return (x1 @ x2 + bias) * scale * pertoken_scale + offset, of int8.

    A bias that is no int32 is added after scaling. output_dtype: int8 by default.
    """
    if x1.dtype != torch.int8 or x2.dtype != torch.int8:
        raise RuntimeError(
            f"npu_quant_matmul takes int8, but got {x1.dtype} and {x2.dtype}"
        )
    refuse("npu_quant_matmul", scale=None if scale.is_floating_point() else scale.dtype)
    product = int_product(x1, x2)
    return scaled(product, scale, pertoken_scale, bias, offset, output_dtype)


def int_product(x: Tensor, weight: Tensor) -> Tensor:
    """Return the product of int8 as int32."""
    if weight.dim() == 2:
        found = torch._int_mm(x.flatten(0, -2), weight)
        return found.view(*x.shape[:-1], weight.shape[-1])
    return x.int() @ weight.int()


def scaled(
    product: Tensor,
    scale: Tensor,
    pertoken_scale: Tensor | None,
    bias: Tensor | None,
    offset: Tensor | None,
    dtype: torch.dtype | None,
) -> Tensor:
    """Return (product + bias) * scale * pertoken_scale + offset."""
    early = bias is not None and bias.dtype == torch.int32
    if bias is not None and early:
        product = product + bias
    found = product.float() * scale.float()
    if pertoken_scale is not None:
        found = found * pertoken_scale[..., None]
    for late in (None if early else bias, offset):
        found = found if late is None else found + late.float()
    if dtype in (None, torch.int8, torch.int32):
        return _rounded(found, dtype or torch.int8)
    return found.to(dtype)


def _rounded(values: Tensor, dtype: torch.dtype) -> Tensor:
    limits = torch.iinfo(dtype)
    # float32 has no number 2**31 - 1.
    return values.double().round().clamp(limits.min, limits.max).to(dtype)
