"""Where the live calls of this folder are collected, and what they share."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from interpreter import Forked, shared_zygote

npu = torch.npu
CALLS: dict[str, Callable[[], None]] = {}
MIB = 1 << 20


def calls(*names: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    def add(function: Callable[[], None]) -> Callable[[], None]:
        for name in names:
            assert name not in CALLS, name
            CALLS[name] = function
        return function

    return add


def child(code: str) -> str:
    """Run a program of its own and return what it printed."""
    with tempfile.TemporaryDirectory() as folder:
        python = Forked(Path(folder), shared_zygote())
        return python("import torch\nnpu = torch.npu\n" + code).stdout.strip()


def filled(value: float, n: int = 4) -> torch.Tensor:
    return torch.full((n,), value, device="npu")


def bytes_of(n: int) -> torch.Tensor:
    return torch.empty(n, dtype=torch.uint8, device="npu")
