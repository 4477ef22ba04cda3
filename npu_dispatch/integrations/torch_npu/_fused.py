"""The vendor's fused functions, as the sequence of operators they stand for."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from npu_dispatch.integrations.torch_npu._operators import operator


@operator
def npu_rms_norm(
    self: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Return x / rms(x) * gamma over gamma's dimensions, and 1 / rms as float32."""
    dims = list(range(-gamma.dim(), 0))
    wide = self.float()
    rstd = torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + epsilon)
    return (wide * rstd).to(self.dtype) * gamma, rstd


@operator
def npu_geglu(
    self: Tensor, dim: int = -1, approximate: int = 1, activate_left: bool = False
) -> tuple[Tensor, Tensor]:
    """Return one half of x times gelu of the other, and that gelu.

    approximate: 0 is exact, 1 uses tanh. activate_left: take gelu of the first half.
    """
    left, right = self.chunk(2, dim)
    if activate_left:
        left, right = right, left
    gelu = functional.gelu(right, approximate="tanh" if approximate else "none")
    return left * gelu, gelu


@operator
def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """Return silu of the first half of x, times the second."""
    left, right = self.chunk(2, dim)
    return functional.silu(left) * right


@operator
def npu_rotary_mul(
    input: Tensor,
    r1: Tensor,
    r2: Tensor,
    rotary_mode: str = "half",
) -> Tensor:
    """Return x * r1 + rotate(x) * r2: rotary position embedding.

    rotary_mode: "half" pairs the halves of the last dimension, "interleave" pairs
    neighbours.
    """
    if rotary_mode == "half":
        first, second = input.chunk(2, -1)
        turned = torch.cat((-second, first), -1)
    elif rotary_mode == "interleave":
        turned = torch.stack((-input[..., 1::2], input[..., ::2]), -1).flatten(-2)
    else:
        raise RuntimeError(
            f"rotary_mode must be 'half' or 'interleave', but got {rotary_mode!r}"
        )
    return input * r1 + turned * r2


def npu_apply_adam_w(
    beta1_power: float,
    beta2_power: float,
    lr: float,
    weight_decay: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    grad: Tensor,
    max_grad_norm: Tensor | None,
    amsgrad: bool | None,
    maximize: bool | None,
    *,
    out: tuple[Tensor, Tensor, Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """Do one step of AdamW in place on out = (parameter, mean, square).

    beta1_power and beta2_power: the betas to the power of the steps before this one.
    """
    parameter, mean, square = out
    step = -grad if maximize else grad
    mean.lerp_(step.to(mean.dtype), 1 - beta1)
    square.mul_(beta2).addcmul_(step, step, value=1 - beta2)
    largest = square
    if amsgrad and max_grad_norm is not None:
        largest = torch.maximum(max_grad_norm, square, out=max_grad_norm)
    root = largest.div(1 - beta2_power * beta2).sqrt_().add_(epsilon)
    parameter.mul_(1 - lr * weight_decay)
    parameter.addcdiv_(mean, root, value=-lr / (1 - beta1_power * beta1))
    return out


@operator
def npu_add_rms_norm(
    x1: Tensor, x2: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor, Tensor]:
    """Return npu_rms_norm of the sum, and the sum."""
    total = x1 + x2
    normed, rstd = npu_rms_norm(total, gamma, epsilon)
    return normed, rstd, total


@operator
def npu_deep_norm(
    x: Tensor,
    gx: Tensor,
    beta: Tensor,
    gamma: Tensor,
    alpha: float = 0.3,
    epsilon: float = 1e-6,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return mean, 1 / deviation and layer_norm of alpha * x + gx."""
    wide = alpha * x.float() + gx.float()
    dims = list(range(-gamma.dim(), 0))
    mean = wide.mean(dims, keepdim=True)
    rstd = torch.rsqrt(wide.var(dims, correction=0, keepdim=True) + epsilon)
    return mean, rstd, ((wide - mean) * rstd * gamma + beta).to(x.dtype)


@operator
def npu_scaled_masked_softmax(
    x: Tensor, mask: Tensor, scale: float = 1.0, fixed_triu_mask: bool = False
) -> Tensor:
    """Return softmax of scale * x over the last dimension.

    Where mask is True the exponent is -10000. fixed_triu_mask: mask what lies above
    the diagonal instead.
    """
    if fixed_triu_mask:
        mask = torch.ones_like(mask, dtype=torch.bool).triu(1)
    scores = (x.float() * scale).masked_fill(mask.bool(), -10000.0)
    return scores.softmax(-1).to(x.dtype)


@operator
def npu_gelu(self: Tensor, *, approximate: str = "none") -> Tensor:
    """Return gelu(x)."""
    return functional.gelu(self, approximate=approximate)


@operator
def npu_fast_gelu(self: Tensor) -> Tensor:
    """Return x * sigmoid(1.702 * x)."""
    return self * torch.sigmoid(1.702 * self)


@operator
def npu_silu(self: Tensor) -> Tensor:
    """Return silu(x)."""
    return functional.silu(self)


@operator
def npu_apply_rotary_pos_emb(
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    layout: str = "BSND",
    rotary_mode: str = "half",
) -> tuple[Tensor, Tensor]:
    """Return npu_rotary_mul of query and of key; neither is changed.

    layout: of no effect, because cos and sin have the dimensions of query.
    """
    return (
        npu_rotary_mul(query, cos, sin, rotary_mode),
        npu_rotary_mul(key, cos, sin, rotary_mode),
    )


@operator
def npu_linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return input @ weight.T + bias."""
    return functional.linear(input, weight, bias)


@operator
def npu_dtype_cast(self: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the tensor as another type."""
    return self.to(dtype)


@operator
def npu_transpose(
    self: Tensor, perm: list[int], require_contiguous: bool = True
) -> Tensor:
    """Return the tensor with permuted dimensions, contiguous."""
    return self.permute(perm).contiguous()


@operator
def npu_confusion_transpose(
    self: Tensor, perm: list[int], shape: list[int], transpose_first: bool
) -> Tensor:
    """Return the tensor permuted and then reshaped, or in the other order."""
    if transpose_first:
        return self.permute(perm).reshape(shape)
    return self.reshape(shape).permute(perm).contiguous()


@operator
def npu_one_hot(
    self: Tensor,
    num_classes: int = -1,
    depth: int = 1,
    on_value: float = 1,
    off_value: float = 0,
) -> Tensor:
    """Return on_value where the new dimension's place is the class, else off_value.

    num_classes: where the new dimension, of size depth, goes. A class outside of it
    has off_value alone.
    """
    places = torch.arange(depth, device=self.device, dtype=self.dtype)
    on = (self.unsqueeze(-1) == places).movedim(-1, num_classes)
    return torch.where(on, float(on_value), float(off_value))


@operator
def npu_iou(bboxes: Tensor, gtboxes: Tensor, mode: int = 0) -> Tensor:
    """Return the overlap of each of gtboxes, by rows, with each of bboxes.

    A box is (x1, y1, x2, y2). mode: 0 divides by the area of both, 1 by that of the
    box in gtboxes.
    """
    boxes, others = bboxes.float(), gtboxes.float()[:, None]
    begin = torch.maximum(boxes[:, :2], others[..., :2])
    end = torch.minimum(boxes[:, 2:], others[..., 2:])
    overlap = (end - begin).clamp_min(0).prod(-1)
    area = (others[..., 2:] - others[..., :2]).prod(-1)
    if mode == 0:
        area = area + (boxes[:, 2:] - boxes[:, :2]).prod(-1) - overlap
    return (overlap / (area + 1e-7)).to(bboxes.dtype)
