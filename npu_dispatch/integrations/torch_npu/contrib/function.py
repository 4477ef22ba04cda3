"""torch_npu.contrib.function: torch's own functions under the vendor's names."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from npu_dispatch.import_alias import refused_names

roll = torch.roll
dropout_with_byte_mask = functional.dropout


def matmul_transpose(self: Tensor, mat2: Tensor) -> Tensor:
    """Return self @ mat2.T."""
    return self @ mat2.mT


def npu_fast_condition_index_put(x: Tensor, condition: Tensor, value: Any) -> Tensor:
    """Return x with value where condition is True."""
    return x.masked_fill(condition, value)


def fuse_add_softmax_dropout(
    training: bool,
    dropout: Any,
    attn_mask: Tensor,
    attn_scores: Tensor,
    attn_head_size: float,
    p: float = 0.5,
    dim: int = -1,
) -> Tensor:
    """Return dropout of softmax(attn_mask + attn_scores / sqrt(attn_head_size)).

    dropout is not called: p and training say what it does.
    """
    scores = attn_mask + attn_scores / math.sqrt(attn_head_size)
    return functional.dropout(scores.softmax(dim), p, training)


__getattr__ = refused_names("torch_npu.contrib.function")
