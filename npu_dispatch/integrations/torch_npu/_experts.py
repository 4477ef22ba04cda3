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
    **others: Any,
) -> list[Tensor]:
    """Return x @ weight + bias of each group, of floating-point numbers.

    Without group_list, the lists of x and weight are the groups. Else the one x is
    divided: its rows, or with group_type 2 its columns and weight's rows. group_list
    says where groups end or, with group_list_type 1, how large they are; rows behind
    the last are zero. split_item: 2 and 3 return one tensor; 0 and 1 return one per
    group, for which the call waits for group_list.
    """
    others["act_type"] = act_type or None
    others["group_list_type"] = group_list_type if group_list_type == 2 else None
    refuse("npu_grouped_matmul", **others)
    whole = split_item in (2, 3)
    if group_list is None:
        products = [a @ b for a, b in zip(x, weight, strict=True)]
        if bias is not None:
            products = [a + b for a, b in zip(products, bias, strict=True)]
        products = [torch.cat(products)] if whole else products
    else:
        [rows] = x
        groups = torch.as_tensor(group_list, device=rows.device)
        ends = groups.cumsum(0) if group_list_type == 1 else groups
        product = _product(rows, _one(weight), ends)
        if bias is not None:
            places = torch.arange(product.shape[0], device=rows.device)
            group = torch.searchsorted(ends, places, right=True)
            product = product + _one(bias)[group.clamp_max(len(ends) - 1)]
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
    product = x.new_zeros(_shape(x, weight, ends))
    begin = 0
    for i, end in enumerate(ends.tolist()):
        if weight.dim() == 3:
            product[begin:end] = x[begin:end] @ weight[i]
        else:
            product[i] = x[:, begin:end] @ weight[begin:end]
        begin = end
    return product


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
    return x.new_empty(_shape(x, weight, ends))


def _save(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    x, weight, ends = ctx.saved_tensors
    if weight.dim() == 3:
        return _product(grad, weight.mT, ends), _product(x.mT, grad, ends), None
    return _product(weight, grad.mT, ends).mT, _product(x.mT, grad, ends), None


_product.register_autograd(_gradients, setup_context=_save)
