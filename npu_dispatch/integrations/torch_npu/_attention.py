"""Attention under the vendor's names, as the sequence of operators it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from npu_dispatch.integrations.torch_npu._operators import (
    operator,
    operator_of,
    refuse,
)

__all__ = [
    "npu_fused_infer_attention_score",
    "npu_fusion_attention",
    "npu_incre_flash_attention",
    "npu_prompt_flash_attention",
]

_NEVER = 2147483647
# The softmax's statistics are repeated along a last dimension of this size.
_STATISTICS = 8
# How layouts of all four dimensions become (batch, heads, length, features).
_TO_BNSD = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3)}


@operator
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
    refuse("npu_fusion_attention", padding_mask=padding_mask, prefix=prefix)
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


def _tensors(names: str) -> str:
    return "".join(f"Tensor? {name}=None, " for name in names.split())


_QUERY_KEY_VALUE = "(Tensor query, Tensor key, Tensor value, *, "
_INFERENCE = (
    "SymInt[]? actual_seq_lengths=None, int num_heads=1, str input_layout='BSH', "
    "int num_key_value_heads=0, "
)
_QUANTIZATION = "quant_scale1 quant_scale2 quant_offset2 "


def _infer(
    name: str,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float,
    next_tokens: int = _NEVER,
    atten_mask: Tensor | None = None,
    actual_seq_lengths: Sequence[int] | None = None,
    actual_seq_lengths_kv: Sequence[int] | None = None,
    num_heads: int = 1,
    pre_tokens: int = _NEVER,
    input_layout: str = "BSH",
    sparse_mode: int = 0,
    num_key_value_heads: int = 0,
    inner_precise: int = 0,
    block_size: int = 0,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Return attention and the logarithms of the sums of its exponentials."""
    by_token = input_layout == "TND"
    if sparse_mode == 3 and not by_token:  # its band would depend on the lengths
        others["actual_seq_lengths_kv"] = actual_seq_lengths_kv
    refuse(name, **others)
    length = 2 if input_layout == "BNSD" else 1
    if atten_mask is None:
        pre_tokens = next_tokens = _NEVER
    elif query.shape[length] == 1:
        atten_mask = atten_mask.reshape(atten_mask.shape[0], 1, 1, -1)
    elif atten_mask.dim() == 3:
        atten_mask = atten_mask[:, None]
    if not by_token:
        atten_mask = _no_padding(atten_mask, key, length, actual_seq_lengths_kv)
    found, most, total, *_ = npu_fusion_attention(
        *(query, key, value, num_heads, input_layout),
        atten_mask=atten_mask,
        scale=scale,
        pre_tockens=pre_tokens,
        next_tockens=next_tokens,
        sparse_mode=sparse_mode,
        actual_seq_qlen=actual_seq_lengths,
        actual_seq_kvlen=actual_seq_lengths_kv,
    )
    return found, (most + total.log())[..., :1]


@operator_of(
    _QUERY_KEY_VALUE
    + _INFERENCE
    + _tensors(
        _QUANTIZATION + "pse_shift atten_mask dequant_scale1 dequant_scale2 "
        "antiquant_scale antiquant_offset key_antiquant_scale key_antiquant_offset "
        "value_antiquant_scale value_antiquant_offset block_table query_padding_size "
        "kv_padding_size key_shared_prefix value_shared_prefix query_rope key_rope "
        "key_rope_antiquant_scale"
    )
    + "SymInt[]? actual_seq_lengths_kv=None, SymInt[]? actual_shared_prefix_len=None, "
    "float scale=1.0, int pre_tokens=2147483647, int next_tokens=2147483647, "
    "int sparse_mode=0, int inner_precise=0, int block_size=0, int antiquant_mode=0, "
    "int key_antiquant_mode=0, int value_antiquant_mode=0, "
    "bool softmax_lse_flag=False) -> (Tensor, Tensor)"
)
def npu_fused_infer_attention_score(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float = 1.0,
    softmax_lse_flag: bool = False,
    **others: Any,
) -> tuple[Tensor, Tensor]:
    """Return attention, and with softmax_lse_flag the softmax's log-sum-exp, else 0."""
    name = "npu_fused_infer_attention_score"
    found, logarithm = _infer(name, query, key, value, scale, **others)
    return found, logarithm if softmax_lse_flag else logarithm.new_zeros(1)


@operator_of(
    _QUERY_KEY_VALUE
    + _INFERENCE
    + _tensors(
        _QUANTIZATION + "padding_mask atten_mask pse_shift deq_scale1 deq_scale2"
    )
    + "SymInt[]? actual_seq_lengths_kv=None, float scale_value=1.0, "
    "int pre_tokens=2147483647, int next_tokens=0, int sparse_mode=0) -> Tensor"
)
def npu_prompt_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale_value: float = 1.0,
    next_tokens: int = 0,
    **others: Any,
) -> Tensor:
    """Return attention of whole prompts; rows of padding are undefined.

    Without a mask, sparse_mode 0 lets every query see every key.
    """
    name = "npu_prompt_flash_attention"
    return _infer(name, query, key, value, scale_value, next_tokens, **others)[0]


@operator_of(
    _QUERY_KEY_VALUE
    + _INFERENCE
    + _tensors(
        _QUANTIZATION + "padding_mask atten_mask pse_shift antiquant_scale "
        "antiquant_offset block_table dequant_scale1 dequant_scale2 kv_padding_size"
    )
    + "float scale_value=1.0, int block_size=0, int inner_precise=1) -> Tensor"
)
def npu_incre_flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale_value: float = 1.0,
    actual_seq_lengths: Sequence[int] | None = None,
    **others: Any,
) -> Tensor:
    """Return attention of one new token per sequence to the keys before it."""
    others["actual_seq_lengths_kv"] = actual_seq_lengths
    name = "npu_incre_flash_attention"
    return _infer(name, query, key, value, scale_value, **others)[0]


def _no_padding(
    mask: Tensor | None, key: Tensor, dim: int, lengths: Sequence[int] | None
) -> Tensor | None:
    """Return a mask that also hides the keys behind each sequence's length."""
    if lengths is None:
        return mask
    places = torch.arange(key.shape[dim], device=key.device)
    ends = torch.tensor(list(lengths), device=key.device)
    hidden = places >= ends[:, None, None, None]
    return hidden if mask is None else hidden | mask.bool()


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
    scores = (q @ k.transpose(-1, -2)).float()
    if pse is not None:
        scores = scores + pse
    scores = scores * scale
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
