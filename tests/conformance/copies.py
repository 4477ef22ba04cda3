"""Copies of a call's arguments on a device, laid out as they were."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Device = torch.device


class Copies:
    """Copies of values whose tensors keep sizes, strides, offsets and aliases.

    One object serves one call. Tensors that share memory share it in the copy,
    and a tensor that is passed twice is one tensor there, too.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # By identity; the original is kept so that no other takes its address.
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(self.of, value))
        if isinstance(value, list | tuple):
            return type(value)(map(self.of, value))
        if isinstance(value, dict):
            return {key: self.of(v) for key, v in value.items()}
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        if isinstance(value, Device) and value.type == "cpu":
            return self.device
        if isinstance(value, str) and value == "cpu":
            return str(self.device)
        return value

    def memory(self) -> list[Tensor]:
        """Return all bytes behind the copies, gaps between elements included."""
        return [copy for _, copy in self._memory.values()]

    def dtypes(self) -> list[torch.dtype]:
        """Return what memory() holds, buffer by buffer."""
        return [original.dtype for original, _ in self._memory.values()]

    def nudge(self, seed: int) -> None:
        """Move each number by a rounding error, this way or that."""
        signs = torch.Generator().manual_seed(seed)
        for memory, dtype in zip(self.memory(), self.dtypes(), strict=True):
            if dtype.is_floating_point or dtype.is_complex:
                size = memory.numel() // dtype.itemsize
                numbers = memory[: size * dtype.itemsize].view(dtype)
                way = torch.randint(0, 2, (size,), generator=signs) * 2 - 1
                numbers.mul_((1 + torch.finfo(dtype).eps * way).to(dtype))

    def tensors(self) -> list[Tensor]:
        return [copy for _, copy in self._tensors.values()]

    def _tensor(self, original: Tensor) -> Tensor:
        if id(original) not in self._tensors:
            with torch.no_grad():
                copy = self._laid_out(original.detach())
            if original.requires_grad:
                copy = copy.detach().requires_grad_()
            self._tensors[id(original)] = (original, copy)
        return self._tensors[id(original)][1]

    def _laid_out(self, original: Tensor) -> Tensor:
        if original.layout != torch.strided or original.is_nested:
            return original.to(self.device, copy=True)
        storage = original.untyped_storage()
        if storage.nbytes() == 0 or original.numel() == 0:
            return torch.empty_strided(
                original.size(),
                original.stride(),
                dtype=original.dtype,
                device=self.device,
            )
        if storage._cdata not in self._memory:
            flat = torch.empty(0, dtype=torch.uint8).set_(storage)
            self._memory[storage._cdata] = (
                original,
                flat.to(self.device, copy=True),
            )
        copy = torch.empty(0, dtype=original.dtype, device=self.device)
        copy.set_(
            self._memory[storage._cdata][1].untyped_storage(),
            original.storage_offset(),
            original.size(),
            original.stride(),
        )
        if original.is_conj():
            copy = torch._conj(copy)
        if original.is_neg():
            copy = torch._neg_view(copy)
        return copy


def tensors_in(value: Any) -> list[Tensor]:
    """Return the tensors of a structure, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in tensors_in(part)]
    return []
