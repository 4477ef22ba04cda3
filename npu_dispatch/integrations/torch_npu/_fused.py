"""The vendor's fused functions, as the sequence of operators they stand for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

__all__ = [
    "npu_apply_adam_w",
    "npu_fusion_attention",
    "npu_geglu",
    "npu_rms_norm",
    "npu_rotary_mul",
    "npu_swiglu",
]

_NEVER = 2147483647
# The softmax's statistics are repeated along a last dimension of this size.
_STATISTICS = 8
# How layouts of all four dimensions become (batch, heads, length, features).
_TO_BNSD = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3)}


def npu_rms_norm(
    self: Tensor, gamma: Tensor, epsilon: float = 1e-6
) -> tuple[Tensor, Tensor]:
    """Return x / rms(x) * gamma over gamma's dimensions, and 1 / rms as float32."""
    dims = list(range(-gamma.dim(), 0))
    wide = self.float()
    rstd = torch.rsqrt(wide.pow(2).mean(dims, keepdim=True) + epsilon)
    return (wide * rstd).to(self.dtype) * gamma, rstd


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


def npu_swiglu(self: Tensor, dim: int = -1) -> Tensor:
    """Return silu of the first half of x, times the second."""
    left, right = self.chunk(2, dim)
    return functional.silu(left) * right


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


def npu_fusion_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    head_num: int,
    input_layout: str,
    pse: Tensor | None = None,
    padding_mask: Tensor | None = None,
    atten_mask: Tensor | None = None,
    scale: float = 1.0,
    keep_prob: float = 1.0,
    pre_tockens: int = _NEVER,
    next_tockens: int = _NEVER,
    inner_precise: int = 0,
    prefix: Sequence[int] | None = None,
    actual_seq_qlen: Sequence[int] | None = None,
    actual_seq_kvlen: Sequence[int] | None = None,
    sparse_mode: int = 0,
    gen_mask_parallel: bool = True,
    sync: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int, int]:
    """Return attention, the softmax's maxima and sums, and four places unused.

    input_layout: BSH, SBH, BNSD, BSND, or TND with the ends of the sequences in
    actual_seq_qlen and actual_seq_kvlen. atten_mask: where True, a key is hidden.
    sparse_mode: 0 applies the mask and the band of pre_tockens and next_tockens, 1
    the mask alone; 2 is causal from the upper left corner, 3 from the lower right
    one. The statistics are float32 of shape (batch, heads, length, 8).
    """
    if sparse_mode not in (0, 1, 2, 3):
        raise RuntimeError(f"sparse_mode must be 0 to 3, but got {sparse_mode}")
    if padding_mask is not None or prefix is not None:
        raise RuntimeError("padding_mask and prefix are not supported")
    rules = (pse, atten_mask, scale, keep_prob, pre_tockens, next_tockens, sparse_mode)
    if input_layout == "TND":
        if actual_seq_qlen is None or actual_seq_kvlen is None:
            raise RuntimeError("TND needs actual_seq_qlen and actual_seq_kvlen")
        parts = []
        begin_q = begin_k = 0
        for end_q, end_k in zip(actual_seq_qlen, actual_seq_kvlen, strict=True):
            q, k, v = (
                t[begin:end].transpose(0, 1)[None]
                for t, begin, end in (
                    (query, begin_q, end_q),
                    (key, begin_k, end_k),
                    (value, begin_k, end_k),
                )
            )
            parts.append([x[0].transpose(0, 1) for x in _attention(q, k, v, *rules)])
            begin_q, begin_k = end_q, end_k
        result, most, total = (torch.cat(list(x)) for x in zip(*parts, strict=True))
    else:
        q = _to_bnsd(query, head_num, input_layout)
        # Keys and values may have fewer heads, of the same size.
        size = q.shape[-1]
        k = _to_bnsd(key, key.shape[-1] // size, input_layout)
        v = _to_bnsd(value, key.shape[-1] // size, input_layout)
        result, most, total = _attention(q, k, v, *rules)
        result = _from_bnsd(result, input_layout)
    return result, most, total, query.new_empty(0), 0, 0, 0


def _to_bnsd(x: Tensor, heads: int, layout: str) -> Tensor:
    if layout in _TO_BNSD:
        return x.permute(_TO_BNSD[layout])
    if layout == "BSH":
        return x.reshape(*x.shape[:-1], heads, -1).transpose(1, 2)
    if layout == "SBH":
        return x.reshape(*x.shape[:-1], heads, -1).permute(1, 2, 0, 3)
    raise RuntimeError(
        f"input_layout must be BSH, SBH, BNSD, BSND or TND, but got {layout!r}"
    )


def _from_bnsd(x: Tensor, layout: str) -> Tensor:
    if layout in _TO_BNSD:
        return x.permute(_TO_BNSD[layout])  # both are their own inverses
    if layout == "BSH":
        return x.transpose(1, 2).flatten(2)
    return x.permute(2, 0, 1, 3).flatten(2)


def _hidden(
    q_len: int, k_len: int, mask: Tensor | None, pre: int, following: int, mode: int
) -> tuple[Tensor | None, tuple[int, int] | None]:
    """Return the mask and the band (before, after) that apply."""
    if mode == 2:
        return None, (_NEVER, 0)
    if mode == 3:
        return None, (_NEVER, k_len - q_len)
    if mode == 0 and (pre != _NEVER or following != _NEVER):
        return mask, (pre, following)
    return mask, None


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    pse: Tensor | None,
    mask: Tensor | None,
    scale: float,
    keep_prob: float,
    pre: int,
    following: int,
    mode: int,
) -> tuple[Tensor, Tensor, Tensor]:
    if q.shape[1] != k.shape[1]:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
    scores = (q @ k.transpose(-1, -2)).float() * scale
    if pse is not None:
        scores = scores + pse
    mask, band = _hidden(q.shape[2], k.shape[2], mask, pre, following, mode)
    if mask is not None:
        scores = scores.masked_fill(mask.bool(), float("-inf"))
    if band is not None:
        rows = torch.arange(q.shape[2], device=q.device)[:, None]
        columns = torch.arange(k.shape[2], device=q.device)[None]
        far = (columns - rows > band[1]) | (rows - columns > band[0])
        scores = scores.masked_fill(far, float("-inf"))
    most = scores.amax(-1, keepdim=True)
    # A row that sees nothing gives zeros.
    powers = (scores - most.clamp_min(torch.finfo(torch.float32).min)).exp()
    total = powers.sum(-1, keepdim=True)
    shares = functional.dropout(powers / total.clamp_min(1e-38), 1 - keep_prob)
    return (
        shares.to(v.dtype) @ v,
        most.expand(*most.shape[:-1], _STATISTICS),
        total.expand(*total.shape[:-1], _STATISTICS),
    )
