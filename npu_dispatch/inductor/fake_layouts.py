"""In which order the results of fake convolutions lie in memory.

Convolutions of the device are cpu's, whose results lie as channels_last where an input
does. torch takes those of an unknown backend to be contiguous.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses import fake_impls
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree


def _as_cpu(
    convolve: Callable[..., Any], fake_mode: Any, func: Any, *args: Any, **kwargs: Any
) -> Any:
    fakes = [
        t
        for t in pytree.tree_leaves((args, kwargs))
        if isinstance(t, FakeTensor) and t.fake_device.type == "npu"
    ]
    if not fakes:
        return convolve(fake_mode, func, *args, **kwargs)
    device = fakes[0].fake_device
    try:
        for t in fakes:
            t.fake_device = torch.device("cpu")
        results = convolve(fake_mode, func, *args, **kwargs)
    finally:
        for t in fakes:
            t.fake_device = device
    for t in pytree.tree_leaves(results):
        if isinstance(t, FakeTensor):
            t.fake_device = device
    return results


def lay_out_as_cpu() -> None:
    """Let fake convolutions on the device have the strides of real ones."""
    known = fake_impls.op_implementations_dict
    for func, implementation in list(known.items()):
        if implementation is fake_impls.conv:
            known[func] = functools.partial(_as_cpu, implementation)
