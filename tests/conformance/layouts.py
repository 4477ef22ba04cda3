"""How a tensor of given values can lie in memory."""

from __future__ import annotations

import math
import random

import torch
from torch import Tensor

NAMES = ("permuted", "channels_last", "sliced", "expanded", "zero_strides")
# These keep the values; of the others most are repeated.
KEEP_VALUES = NAMES[:3]


def lay_out(x: Tensor, layout: str, rng: random.Random) -> Tensor:
    """Return x, or an excerpt of it repeated, laid out so; x where it cannot."""
    if x.layout != torch.strided or x.is_nested or x.numel() < 2:
        return x
    with torch.no_grad():
        made = _MAKERS[layout](x.detach(), rng)
    return made.requires_grad_(x.requires_grad)


def _permuted(x: Tensor, rng: random.Random) -> Tensor:
    """Dense; the dimensions lie in another order."""
    if x.dim() < 2:
        return x
    order = list(range(x.dim()))
    while order == sorted(order):
        rng.shuffle(order)
    back = sorted(order, key=order.__getitem__)
    return x.permute(order).contiguous().permute(back)


def _channels_last(x: Tensor, rng: random.Random) -> Tensor:
    if x.dim() < 3:
        return x
    return x.movedim(1, -1).contiguous().movedim(-1, 1)


def _sliced(x: Tensor, rng: random.Random) -> Tensor:
    """Steps over poison in each dimension, and begins behind some."""
    floating = x.is_floating_point() or x.is_complex()
    room = x.new_full([size + 2 for size in x.shape], math.nan if floating else 1)
    part = room[tuple(slice(1, size + 1) for size in x.shape)]
    return part.copy_(x)


def _expanded(x: Tensor, rng: random.Random) -> Tensor:
    """One dimension repeats its first entry."""
    d = rng.choice([d for d in range(x.dim()) if x.shape[d] > 1])
    return x.narrow(d, 0, 1).contiguous().expand_as(x)


def _zero_strides(x: Tensor, rng: random.Random) -> Tensor:
    return x.flatten()[0].clone().expand_as(x)


_MAKERS = dict(
    zip(
        NAMES,
        (_permuted, _channels_last, _sliced, _expanded, _zero_strides),
        strict=True,
    )
)
