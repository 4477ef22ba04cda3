"""One call of an operator, which can be made on one device and on another.

Its arguments are copied there as they lie, or laid out in another way first.
"""

import math
import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils import _pytree as pytree

CPU = torch.device("cpu")


class Copies:
    """Copies of values whose tensors keep sizes, strides, offsets and aliases.

    One object serves one call. Tensors that share memory share it in the copy,
    and a tensor that is passed twice is one tensor there, too.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        # By identity; the original is kept so that no other takes its address.
        self._tensors: dict[int, tuple[Tensor, Tensor]] = {}
        self._memory: dict[int, tuple[Tensor, Tensor]] = {}

    def of(self, value: Any) -> Any:
        return pytree.tree_map(self._of_leaf, value)

    def _of_leaf(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._tensor(value)
        if isinstance(value, torch.Generator):
            return torch.Generator(self.device).manual_seed(value.initial_seed())
        if isinstance(value, torch.device) and value.type == "cpu":
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
            self._memory[storage._cdata] = (original, flat.to(self.device, copy=True))
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
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


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


_MAKERS = {
    "permuted": _permuted,
    "channels_last": _channels_last,
    "sliced": _sliced,
    "expanded": _expanded,
    "zero_strides": _zero_strides,
}
NAMES = tuple(_MAKERS)


@dataclass
class Done:
    """A call that came back."""

    result: Any
    # As the operator's author wants it compared: phases and signs removed.
    processed: Any
    input: Any
    kwargs: dict[str, Any]
    copies: Copies
    out: list[Tensor]
    gradients: list[Tensor | None] = field(default_factory=list)


@dataclass(frozen=True)
class Call:
    """One call of one form of an operator, to be made on two devices."""

    function: Callable[..., Any]
    sample: SampleInput
    host_arguments: bool = False
    out: list[Tensor] | None = None
    # How incoming gradients lie; "": as new ones; None: no backward pass.
    backward: str | None = None
    # Inputs move by a rounding error each, this way or that by a seed.
    nudge: int | None = None
    # Incoming gradients are rounded to this first.
    rounded: torch.dtype | None = None
    # Entered around the operator's own work, forward and backward.
    watch: Callable[[], AbstractContextManager[None]] = nullcontext

    def make(self, device: torch.device) -> Done:
        copies = Copies(device)
        value = copies.of(self.sample.input)
        rest = Copies(CPU) if self.host_arguments else copies
        args, kwargs = rest.of(self.sample.args), rest.of(self.sample.kwargs)
        if self.nudge is not None:
            copies.nudge(self.nudge)
        # Apart from the arguments: what lies there is compared as the result.
        out = Copies(device).of(self.out or [])
        if out:
            kwargs["out"] = out[0] if len(out) == 1 else tuple(out)
        seed_device(device, 0)
        with self.watch():
            result = self.function(value, *args, **kwargs)
        processed = self.sample.output_process_fn_grad(result)
        done = Done(result, processed, value, kwargs, copies, out)
        if self.backward is not None:
            done.gradients = self._gradients(done, [value, args, kwargs], device)
        return done

    def _gradients(
        self, done: Done, arguments: Any, device: torch.device
    ) -> list[Tensor | None]:
        outs = [t for t in tensors_in(done.processed) if t.requires_grad]
        inputs = [t for t in tensors_in(arguments) if t.requires_grad]
        if not outs or not inputs:
            raise NothingToCompareError
        incoming = []
        for i, out in enumerate(outs):
            numbers = torch.Generator().manual_seed(i + 1)
            gradient = torch.randn(out.shape, generator=numbers)
            gradient = gradient.to(self.rounded or out.dtype).to(out.dtype)
            if self.backward:
                gradient = lay_out(gradient, self.backward, random.Random(i))
            incoming.append(Copies(device).of(gradient))
        with self.watch():
            return list(torch.autograd.grad(outs, inputs, incoming, allow_unused=True))


class NothingToCompareError(Exception):
    """The call has no part that is checked."""


def seed_device(device: torch.device, seed: int) -> None:
    """Seed one device: torch.manual_seed formats call stacks for absent ones."""
    if device.type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.get_device_module(device).manual_seed_all(seed)


def attempt(call: Call, device: torch.device) -> tuple[Done | None, Exception | None]:
    try:
        return call.make(device), None
    except Exception as error:
        return None, error
