"""What programs call that outlives its call, or is there on a device alone.

Graphs, operators that are defined and given up, modules, generators, a second device.
On cpu each word does what it means: a replayed function is called again.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.differential import tables

DEVICES = "2"  # so many, as NPU_DISPATCH_DEVICES says it
SIGMAS = 6
_PLANS: list[int] = []  # the limit of a process that has set none


class Words:
    """The words of one machine, and what they have made."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._npu = device == "npu"
        self._graph: Callable[[int], None] | None = None
        self._library: Any = None
        self._modules: dict[Any, torch.nn.Module] = {}

    def names(self) -> dict[str, Any]:
        return {
            "E": "npu:1" if self._npu else self._device,
            "big": self.big,
            "ends": self.ends,
            "pinned": self.pinned,
            "second": self.second,
            "wait": wait_for_all if self._npu else lambda: None,
            "plans": plans if self._npu else contextlib.nullcontext,
            "drawn": self.drawn,
            "graph": self.graph,
            "again": self.again,
            "define": self.define,
            "give_up": self.give_up,
            "compiled": compiled,
            "rnn": self.rnn,
            "Scaled": Scaled,
            "Doubled": Doubled,
            "Parts": Parts,
        }

    def close(self) -> None:
        self._graph = None
        self._modules.clear()
        self.give_up()

    # Numbers.

    def big(self, shape: tables.Shape, dtype: torch.dtype, seed: int) -> Any:
        """Return a tensor of any size, of the numbers that data() has."""
        numbers = tables.table(dtype, seed)
        return tables.repeated(numbers, shape).to(self._device, copy=True)

    def ends(self, shape: tables.Shape, dtype: torch.dtype, start: int) -> Any:
        """Return a tensor of the ends of a dtype's range."""
        numbers = tables.ends(dtype)
        return tables.repeated(numbers, shape, start).to(self._device, copy=True)

    def drawn(
        self,
        seed: int,
        draw: Callable[[torch.Generator | None], torch.Tensor],
        mean: float,
        deviation: float,
        own: bool = False,
    ) -> Any:
        """Return what can be said of random numbers whichever they are.

        A result without its numbers; whether a seed repeats, and a state; whether the
        next draw is another one; whether the mean is as far off as may be.
        """
        generator = torch.Generator(device=self._device) if own else None
        seeds = torch.manual_seed if generator is None else generator.manual_seed
        seeds(seed)
        first, second = draw(generator), draw(generator)
        seeds(seed)
        repeats = [torch.equal(n, draw(generator)) for n in (first, second)]
        if generator is not None:
            state = generator.get_state()
            third = draw(generator)
            generator.set_state(state)
        else:
            state = torch.npu.get_rng_state() if self._npu else torch.get_rng_state()
            third = draw(None)
            (torch.npu.set_rng_state if self._npu else torch.set_rng_state)(state)
        repeats.append(torch.equal(third, draw(generator)))
        numbers = first.double()
        off = abs(numbers.mean().item() - mean) if numbers.numel() else 0.0
        near = off <= SIGMAS * deviation / math.sqrt(max(numbers.numel(), 1)) + 1e-9
        # Few may be the same by chance.
        others = numbers.numel() < 100 or not torch.equal(first, second)
        return torch.zeros_like(first), *repeats, others, near

    # Places.

    def pinned(self, shape: tables.Shape, dtype: torch.dtype, seed: int) -> Any:
        """Return a tensor on the host, in memory that copies reach by themselves."""
        host = tables.small(shape, dtype, seed).clone().view(shape)
        return host.pin_memory() if self._npu else host

    def second(self) -> contextlib.AbstractContextManager[Any]:
        """Make the second device the current one."""
        return torch.npu.device(1) if self._npu else contextlib.nullcontext()

    # What is recorded or defined.

    def graph(self, body: Callable[..., Any], *inputs: torch.Tensor, times: int) -> Any:
        """Record a function of tensors and replay it; return what it wrote."""
        with torch.no_grad():
            if self._npu:
                recorded = torch.npu.NPUGraph()
                with torch.npu.graph(recorded):
                    result = body(*inputs)

                # Inputs must live as long as the graph that reads them.
                def replay(count: int, inputs: Any = inputs) -> None:
                    for _ in range(count):
                        recorded.replay()

                replay(times)
            else:
                result = body(*inputs)

                def replay(count: int) -> None:
                    for _ in range(count):
                        result.copy_(body(*inputs))

                replay(times - 1)
        self._graph = replay
        return result

    def again(self, times: int) -> None:
        """Replay the last graph, whose inputs may hold other numbers by now."""
        if self._graph is not None:
            with torch.no_grad():
                self._graph(times)

    def define(
        self, kernel: Callable[..., Any], key: str, schema: str = "(Tensor x) -> Tensor"
    ) -> None:
        """Define an operator anew: what it meant before is given up."""
        self.give_up()
        self._library = torch.library.Library("fuzzed", "FRAGMENT")
        self._library.define(f"op{schema}")
        self._library.impl("op", kernel, key)
        if key == "CPU":
            torch.library.register_fake("fuzzed::op", kernel, lib=self._library)

    def give_up(self) -> None:
        if self._library is not None:
            self._library._destroy()
            self._library = None

    def rnn(self, kind: str, inputs: int, hidden: int, **options: Any) -> Any:
        """Return a module whose parameters are the same on each device."""
        key = (kind, inputs, hidden, *sorted(options.items()))
        if key not in self._modules:
            made = getattr(torch.nn, kind)(
                inputs, hidden, dtype=torch.float32, **options
            )
            for number, parameter in enumerate(made.parameters()):
                numbers = tables.table(torch.float32, number % 6) / 4
                parameter.data = tables.repeated(numbers, tuple(parameter.shape))
            self._modules[key] = made.to(self._device)
        return self._modules[key]


@functools.cache
def compiled(formula: str) -> Callable[[torch.Tensor], Any]:
    """Return a compiled function of x: once in a process, as in a program."""
    function = eval(f"lambda x: {formula}", {"torch": torch})
    return torch.compile(function, backend="aot_eager")


class Scaled(torch.autograd.Function):
    """x times a number, with a gradient that is another one on purpose."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: float) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * k

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x + ctx.k, None


class Doubled(torch.autograd.Function):
    """In place."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * 2


class Parts(torch.autograd.Function):
    """Two results, one of which has no gradient, and gradients that may be missing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        above = x > 0
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(above)
        ctx.save_for_backward(above)
        return x.clamp(min=0), above

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor | None, _: Any) -> torch.Tensor | None:
        (above,) = ctx.saved_tensors
        return None if grad is None else grad * above


@contextlib.contextmanager
def plans(most: int) -> Iterator[None]:
    """Let the device remember few kinds of calls, so that it gives up some."""
    before = set_plan_limit(most)
    try:
        yield
    finally:
        set_plan_limit(before)


def set_plan_limit(most: int | None) -> int | None:
    """Set how many calls are remembered, None: as at first; return what was set."""
    from npu_dispatch import _C

    if most is None:
        if _PLANS:
            _C.set_plan_limit(_PLANS[0])
        return None
    before = int(_C.set_plan_limit(most))
    if not _PLANS:
        _PLANS.append(before)
    return before


def wait_for_all() -> None:
    for device in range(torch.npu.device_count()):
        torch.npu.synchronize(device)


def reset_all() -> None:
    for device in range(torch.npu.device_count()):
        torch.npu.reset_device(device)
