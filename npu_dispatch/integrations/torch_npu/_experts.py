"""Mixtures of experts: where tokens go, products by group, and how they come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from npu_dispatch.integrations.torch_npu._operators import (
    operator,
    operator_of,
    refuse,
)
from npu_dispatch.integrations.torch_npu._quantized import (
    int_product,
    npu_dynamic_quant,
    scaled,
)


@operator
def npu_moe_gating_top_k_softmax(
    x: Tensor, finished: Tensor | None = None, k: int = 1
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the k largest of softmax(x), their experts, and each one's row.

    finished: where True, the expert is one behind the last. Rows are numbered by
    columns: choice j of token i has the number j * tokens + i.
    """
    if not 0 < k <= x.shape[-1]:
        raise RuntimeError(f"k must be 1 to {x.shape[-1]}, but got {k}")
    shares, experts = x.float().softmax(-1).sort(dim=-1, descending=True, stable=True)
    shares, experts = shares[..., :k].to(x.dtype), experts[..., :k].int()
    if finished is not None:
        experts = experts.masked_fill(finished[..., None], x.shape[-1])
    rows = torch.arange(experts.numel(), dtype=torch.int32, device=x.device)
    return shares, experts, rows.view(k, -1).t().reshape(experts.shape)


@operator
def npu_moe_init_routing(
    x: Tensor, row_idx: Tensor, expert_idx: Tensor, active_num: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return tokens in the order of their experts, each one's place, and the experts.

    row_idx: as npu_moe_gating_top_k_softmax numbers rows. active_num: of how many
    tokens there are rows at most.
    """
    tokens, k = expert_idx.shape
    experts, order = expert_idx.flatten().sort(stable=True)
    sources = row_idx.flatten().index_select(0, order)
    places = torch.arange(tokens * k, dtype=torch.int32, device=x.device)
    places = torch.zeros_like(places).scatter(0, sources.long(), places)
    chosen = sources[: min(active_num, tokens) * k] % tokens
    return x.index_select(0, chosen), places, experts


@operator_of(
    "(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? offset=None, "
    "int active_num=-1, int expert_capacity=-1, int expert_num=-1, "
    "int drop_pad_mode=0, int expert_tokens_num_type=0, "
    "bool expert_tokens_num_flag=False, int quant_mode=-1, "
    "int[2] active_expert_range=[], int row_idx_type=0, int? x_dtype=None) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
def npu_moe_init_routing_v2(
    x: Tensor,
    expert_idx: Tensor,
    scale: Tensor | None = None,
    active_num: int = -1,
    expert_capacity: int = -1,
    expert_num: int = -1,
    expert_tokens_num_type: int = 0,
    expert_tokens_num_flag: bool = False,
    quant_mode: int = -1,
    active_expert_range: Sequence[int] = (),
    row_idx_type: int = 0,
    **others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return tokens in the order of experts, their places, counts, and their scales.

    active_expert_range: the first expert of this device, and the one behind its last;
    tokens of others are behind theirs. row_idx_type: 0 returns each choice's place,
    or -1 where its expert is another device's, 1 each place's choice.
    expert_tokens_num_type: 0 returns where the rows of each expert end, 1 how many it
    has. quant_mode: -1 returns tokens as they are, 1 as npu_dynamic_quant does.
    """
    kind = expert_tokens_num_type
    others["expert_tokens_num_type"] = None if kind in (0, 1) else kind
    others["quant_mode"] = None if quant_mode in (-1, 1) else quant_mode
    refuse("npu_moe_init_routing_v2", **others)
    first, last = active_expert_range or (0, expert_num)
    experts = expert_idx.flatten()
    own = (experts >= first) & (experts < last)
    experts, order = experts.masked_fill(~own, last).sort(stable=True)
    numbers = torch.arange(first, last, dtype=experts.dtype, device=x.device)
    ends = torch.searchsorted(experts, numbers, right=True)
    tokens = ends.diff(prepend=ends.new_zeros(1)) if kind == 1 else ends
    places = order.int()
    if row_idx_type == 0:
        places = order.argsort().int().masked_fill(~own, -1)
    chosen = order // expert_idx.shape[1]
    rows = x.index_select(0, chosen)
    if quant_mode == 1:
        if scale is not None and scale.shape[0] != 1:
            scale = scale[(experts - first).clamp_max(last - first - 1)]
        rows, scales = npu_dynamic_quant(rows, smooth_scales=scale)
    elif scale is None:
        scales = x.new_zeros(len(order), dtype=torch.float32)
    else:
        scales = scale.index_select(0, chosen)
    return rows, places, tokens, scales


@operator
def npu_moe_compute_expert_tokens(
    sorted_expert_for_source_row: Tensor, num_expert: int
) -> Tensor:
    """Return where the rows of each expert end."""
    experts = sorted_expert_for_source_row
    numbers = torch.arange(num_expert, dtype=experts.dtype, device=experts.device)
    return torch.searchsorted(experts, numbers, right=True).to(experts.dtype)


@operator
def npu_moe_finalize_routing(
    expanded_permuted_rows: Tensor,
    skip1: Tensor | None,
    skip2: Tensor | None,
    bias: Tensor | None,
    scales: Tensor | None,
    expanded_src_to_dst_row: Tensor,
    expert_for_source_row: Tensor | None,
    drop_pad_mode: int = 0,
    k: int = 1,
) -> Tensor:
    """Return for each token the scaled sum of its experts' rows, plus the skips.

    drop_pad_mode: 0 and 1 number the rows by columns, 2 and 3 by rows; in 1 and 3 a
    place of -1 is a token that was dropped. k: how many experts a token has, where
    scales does not say it.
    """
    if drop_pad_mode not in (0, 1, 2, 3):
        raise RuntimeError(f"drop_pad_mode must be 0 to 3, but got {drop_pad_mode}")
    rows = expanded_permuted_rows.flatten(0, -2)
    k = k if scales is None else scales.shape[1]
    by_rows = drop_pad_mode >= 2
    places = expanded_src_to_dst_row
    places = places.view(-1, k) if by_rows else places.view(k, -1).t()
    total = rows.index_select(0, places.clamp_min(0).flatten()).float()
    total = total.view(*places.shape, -1).masked_fill((places < 0)[..., None], 0)
    if bias is not None and expert_for_source_row is not None:
        total = total + bias[expert_for_source_row]
    if scales is not None:
        total = total * scales[..., None]
    total = total.sum(1)
    for skip in (skip1, skip2):
        total = total if skip is None else total + skip
    return total.to(rows.dtype)


@operator
def npu_moe_token_permute(
    tokens: Tensor,
    indices: Tensor,
    num_out_tokens: int | None = None,
    padded_mode: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return tokens in the order of their experts, and each one's place.

    num_out_tokens: of how many there are rows; None and 0 mean all.
    """
    refuse("npu_moe_token_permute", padded_mode=padded_mode or None)
    order = indices.flatten().argsort(stable=True)
    chosen = order[: num_out_tokens or None] // (indices.numel() // indices.shape[0])
    return tokens.index_select(0, chosen), order.argsort().int()


@operator
def npu_moe_token_unpermute(
    permuted_tokens: Tensor,
    sorted_indices: Tensor,
    probs: Tensor | None = None,
    padded_mode: bool = False,
    restore_shape: Sequence[int] | None = None,
) -> Tensor:
    """Return the tokens where they were: the sum of probs * rows of each.

    A place behind the last row is that of a token that was dropped, and counts zero.
    """
    refuse("npu_moe_token_unpermute", padded_mode=padded_mode or None)
    last = permuted_tokens.shape[0] - 1
    rows = permuted_tokens.index_select(0, sorted_indices.clamp_max(last))
    rows = rows.masked_fill((sorted_indices > last)[:, None], 0)
    if probs is None:
        return rows
    total = (rows.view(*probs.shape, -1) * probs[..., None]).sum(1)
    return total.to(permuted_tokens.dtype)


_GROUPED = (
    "(Tensor[] x, Tensor[] weight, *, Tensor[]? bias=None, Tensor[]? scale=None, "
    "Tensor[]? offset=None, Tensor[]? antiquant_scale=None, "
    "Tensor[]? antiquant_offset=None, Tensor[]? per_token_scale=None, "
    "%s group_list=None, Tensor[]? activation_input=None, "
    "Tensor[]? activation_quant_scale=None, Tensor[]? activation_quant_offset=None, "
    "int? split_item=0, int? group_type=None, int? group_list_type=0, "
    "int? act_type=0, int[]? tuning_config=None, ScalarType? output_dtype=None"
    ") -> Tensor[]"
)


@operator_of(_GROUPED % "Tensor?", ".List" + _GROUPED % "int[]?")
def npu_grouped_matmul(
    x: Sequence[Tensor],
    weight: Sequence[Tensor],
    bias: Sequence[Tensor] | None = None,
    group_list: Tensor | Sequence[int] | None = None,
    split_item: int | None = 0,
    group_type: int | None = None,
    group_list_type: int | None = 0,
    act_type: int | None = 0,
    tuning_config: Sequence[int] | None = None,
    output_dtype: torch.dtype | None = None,
    scale: Sequence[Tensor] | None = None,
    per_token_scale: Sequence[Tensor] | None = None,
    **others: Any,
) -> list[Tensor]:
    """Return x @ weight + bias of each group.

    Without group_list, the lists of x and weight are the groups. Else the one x is
    divided: its rows, or with group_type 2 its columns and weight's rows. group_list
    says where groups end or, with group_list_type 1, how large they are; rows behind
    the last are zero. split_item: 2 and 3 return one tensor; 0 and 1 return one per
    group, for which the call waits for group_list. scale and per_token_scale: the
    factors of products of int8, which need group_list.
    """
    others["act_type"] = act_type or None
    others["group_list_type"] = group_list_type if group_list_type == 2 else None
    refuse("npu_grouped_matmul", **others)
    whole = split_item in (2, 3)
    if group_list is None:
        refuse("npu_grouped_matmul", scale=scale, per_token_scale=per_token_scale)
        products = [a @ b for a, b in zip(x, weight, strict=True)]
        if bias is not None:
            products = [a + b for a, b in zip(products, bias, strict=True)]
        products = [torch.cat(products)] if whole else products
    else:
        [rows] = x
        groups = torch.as_tensor(group_list, device=rows.device)
        ends = groups.cumsum(0) if group_list_type == 1 else groups
        product = _product(rows, _one(weight), ends)
        places = torch.arange(rows.shape[0], device=rows.device)
        group = torch.searchsorted(ends, places, right=True).clamp_max(len(ends) - 1)
        bias_of_rows = None if bias is None else _one(bias)[group]
        if scale is not None:
            tokens = None if per_token_scale is None else per_token_scale[0]
            factors = _one(scale)
            if not factors.is_floating_point():
                refuse("npu_grouped_matmul", scale=factors.dtype)
            product = scaled(
                product, factors[group], tokens, bias_of_rows, None, output_dtype
            )
        elif bias_of_rows is not None:
            product = product + bias_of_rows
        products = [product] if whole else _split(product, ends)
    return products if output_dtype is None else [p.to(output_dtype) for p in products]


def _one(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.stack(list(tensors))


def _split(product: Tensor, ends: Tensor) -> list[Tensor]:
    """Return the groups' parts of a product, without the rows behind the last."""
    if product.dim() == 3:
        return list(product)
    return list(product.tensor_split(ends.cpu()))[:-1]


@torch.library.custom_op("npu::_product", mutates_args=(), device_types="cpu")
def _product(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    """Return x @ weight by groups of x's rows, or of its columns and weight's rows.

    A kernel of its own, because the caller need not wait for where groups end.
    """
    product = x.new_zeros(_shape(x, weight, ends), dtype=_sums(x.dtype))
    multiply = int_product if x.dtype == torch.int8 else torch.matmul
    begin = 0
    for i, end in enumerate(ends.tolist()):
        if weight.dim() == 3:
            product[begin:end] = multiply(x[begin:end], weight[i])
        else:
            product[i] = multiply(x[:, begin:end], weight[begin:end])
        begin = end
    return product


def _sums(dtype: torch.dtype) -> torch.dtype:
    return torch.int32 if dtype == torch.int8 else dtype


def _shape(x: Tensor, weight: Tensor, ends: Tensor) -> list[int]:
    by_rows = weight.dim() == 3
    groups = weight.shape[:1] if by_rows else ends.shape
    if (x.dtype, x.shape[-1], *groups) != (weight.dtype, weight.shape[-2], *ends.shape):
        raise RuntimeError(
            f"npu_grouped_matmul cannot multiply {x.dtype} of shape {list(x.shape)} by "
            f"{weight.dtype} of {list(weight.shape)} in {ends.numel()} groups"
        )
    return [*(() if by_rows else groups), x.shape[0], weight.shape[-1]]


@_product.register_fake
def _(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:
    return x.new_empty(_shape(x, weight, ends), dtype=_sums(x.dtype))


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight, ends = ctx.saved_tensors
    if weight.dim() == 3:
        return _product(grad, weight.mT, ends), _product(x.mT, grad, ends), None
    return _product(weight, grad.mT, ends).mT, _product(x.mT, grad, ends), None


_product.register_autograd(_gradients, setup_context=_save)
