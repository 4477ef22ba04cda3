"""One call of an operator, which can be made on one device and on another."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import SampleInput

from tests.conformance.copies import Copies, tensors_in
from tests.conformance.layouts import lay_out

CPU = torch.device("cpu")


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
