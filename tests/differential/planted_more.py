"""Bugs of what is remembered, recorded or found out too late, to plant likewise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from tests.differential.planted import BUGS, bug
from tests.differential.words import Words

__all__ = ["BUGS"]  # those of planted.py too
LARGE = 65536


def _on_npu(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "npu"


def _fail_later() -> None:
    """Queue a task that fails when it runs, as a kernel does that finds a mistake."""
    torch.zeros(3, device="npu")[torch.tensor([7], device="npu")]


def _late(owner: Any, name: str, applies: Callable[..., bool], result: Any) -> None:
    """Make a function tell late of what it has to refuse."""
    call = getattr(owner, name)

    def other(*arguments: Any, **options: Any) -> Any:
        try:
            return call(*arguments, **options)
        except (RuntimeError, IndexError):
            if not _on_npu(arguments[0]) or not applies(*arguments):
                raise
        _fail_later()
        return result(*arguments)

    setattr(owner, name, other)


@bug
def late_bias() -> None:
    """A large linear layer finds a wrong bias when it runs."""
    _late(
        torch.nn.functional,
        "linear",
        lambda x, *_: x.numel() > LARGE,
        lambda x, weight, *_: x.new_zeros((*x.shape[:-1], weight.shape[0])),
    )


@bug
def late_after_a_right_call() -> None:
    """index_put_ and index_add_ look at sizes in the first call of a kind only."""
    for name in ("index_put_", "index_add_"):
        call, seen = getattr(torch.Tensor, name), set()

        def other(
            self: torch.Tensor,
            *arguments: Any,
            call: Any = call,
            seen: Any = seen,
            **options: Any,
        ) -> Any:
            kind = self.shape, self.dtype
            try:
                result = call(self, *arguments, **options)
            except (RuntimeError, IndexError):
                if not _on_npu(self) or kind not in seen:
                    raise
                _fail_later()
                return self
            seen.add(kind)
            return result

        setattr(torch.Tensor, name, other)


@bug
def late_index_reduce() -> None:
    """index_reduce_ and put_ find a wrong number of elements when they run."""
    for name in ("index_reduce_", "put_"):
        _late(torch.Tensor, name, lambda *_: True, lambda x, *_: x)


@bug
def draws_more_than_there_are() -> None:
    """multinomial draws more categories than there are."""
    multinomial = torch.multinomial

    def other(weights: torch.Tensor, n: int, *rest: Any, **options: Any) -> Any:
        if _on_npu(weights) and not rest and n > weights.shape[-1]:
            return torch.zeros(n, dtype=torch.int64, device="npu")
        return multinomial(weights, n, *rest, **options)

    torch.multinomial = other


@bug
def another_type_of_error() -> None:
    """A decomposition that fails raises RuntimeError, which is not LinAlgError."""

    def plain(name: str) -> None:
        call = getattr(torch.linalg, name)

        def other(x: torch.Tensor, *rest: Any, **options: Any) -> Any:
            try:
                return call(x, *rest, **options)
            except torch.linalg.LinAlgError as error:
                if _on_npu(x):
                    raise RuntimeError(str(error)) from None
                raise

        setattr(torch.linalg, name, other)

    for name in ("eigh", "svd", "eigvalsh"):
        plain(name)


@bug
def replays_once() -> None:
    """A graph is replayed once: later replays leave what was there."""
    replay = torch.npu.NPUGraph.replay

    def other(self: Any) -> None:
        if not hasattr(self, "replayed"):
            self.replayed = True
            replay(self)

    torch.npu.NPUGraph.replay = other  # type: ignore[method-assign]


@bug
def replays_old_numbers() -> None:
    """A graph works on a copy of what its inputs held when it was recorded."""
    graph = Words.graph

    def other(self: Words, body: Any, *inputs: torch.Tensor, times: int) -> Any:
        if _on_npu(inputs[0]):
            inputs = tuple(x.clone() for x in inputs)
        return graph(self, body, *inputs, times=times)

    Words.graph = other  # type: ignore[method-assign]


@bug
def seed_that_does_not_repeat() -> None:
    """randn forgets that its generator was seeded anew."""
    randn, drawn = torch.randn, [0]

    def other(*shape: Any, **options: Any) -> torch.Tensor:
        if str(options.get("device", "cpu")).startswith("npu"):
            drawn[0] += 1
            return randn(*shape, **options).roll(drawn[0])
        return randn(*shape, **options)

    torch.randn = other


@bug
def values_of_the_first_device() -> None:
    """A sum on the second device is worked out on the first, and stays there."""
    add = torch.Tensor.__add__

    def other(self: torch.Tensor, number: Any) -> torch.Tensor:
        if self.device == torch.device("npu", 1):
            return add(self.to("npu:0"), number)
        return add(self, number)

    torch.Tensor.__add__ = other  # type: ignore[method-assign]


@bug
def old_numbers_on_the_second_device() -> None:
    """A copy to the second device is the first one of that shape."""
    to, seen = torch.Tensor.to, {}

    def other(self: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
        made = to(self, *arguments, **options)
        if arguments[:1] != ("npu:1",):
            return made
        return seen.setdefault((made.shape, made.dtype), made).clone()

    torch.Tensor.to = other  # type: ignore[method-assign]


@bug
def ignores_autocast() -> None:
    """A region of autocast is one in name only."""
    enter = torch.autocast.__enter__

    def other(self: Any) -> Any:
        entered = enter(self)
        if self.device == "npu":
            torch.set_autocast_enabled("npu", False)
        return entered

    torch.autocast.__enter__ = other  # type: ignore[method-assign]


@bug
def old_meaning() -> None:
    """An operator that is defined again does what it did at first."""
    define, first = Words.define, {}

    def other(self: Words, kernel: Any, key: str, *schema: str) -> None:
        if self._npu:
            kernel = first.setdefault((key, schema), kernel)
        define(self, kernel, key, *schema)

    Words.define = other  # type: ignore[method-assign]


@bug
def wrong_shape_after_eviction() -> None:
    """A call that was given up gets the shape of another one of its kind."""
    from npu_dispatch import _C

    div, limit, calls = torch.div, _C.set_plan_limit, {}
    few = [False]

    def set_limit(most: int) -> int:
        few[0] = most < 100
        return limit(most)

    def other(x: Any, y: Any, **options: Any) -> Any:
        result = div(x, y, **options)
        if not few[0] or not _on_npu(x):
            return result
        calls.setdefault(result.dtype, result.shape)
        fits = calls[result.dtype].numel() == result.numel()
        if fits or result.dim() != 1 or result.numel() < 2:
            return result
        return result[: max(calls[result.dtype].numel(), 1)].clone()

    _C.set_plan_limit, torch.div = set_limit, other


@bug
def last_length() -> None:
    """A recurrent module of another length gives what the last one gave."""
    forward, last = torch.nn.LSTM.forward, {}

    def other(self: Any, x: Any, *rest: Any) -> Any:
        result = forward(self, x, *rest)
        if not _on_npu(x):
            return result
        return last.setdefault((id(self), x.shape[1:]), result)

    torch.nn.LSTM.forward = other  # type: ignore[method-assign]


@bug
def lost_batch() -> None:
    """vmap loses the last one of the batch."""
    vmap = torch.func.vmap

    def other(function: Any, *rest: Any, **options: Any) -> Any:
        mapped = vmap(function, *rest, **options)

        def call(x: Any, *others: Any) -> Any:
            result = mapped(x, *others)
            return result[:-1] if _on_npu(result) and result.dim() else result

        return call

    torch.func.vmap = other


@bug
def lost_tangent() -> None:
    """jvp gives no tangent but zeros."""
    jvp = torch.func.jvp

    def other(function: Any, primals: Any, tangents: Any, **options: Any) -> Any:
        result, tangent = jvp(function, primals, tangents, **options)
        return result, torch.zeros_like(tangent) if _on_npu(result) else tangent

    torch.func.jvp = other


@bug
def large_numbers_through_float32() -> None:
    """Large whole numbers go through a dtype that cannot hold them."""

    def other(call: Any) -> Any:
        def rounded(x: Any, y: Any, **options: Any) -> Any:
            result = call(x, y, **options)
            if _on_npu(result) and result.dtype == torch.int64:
                return torch.where(result.abs() > 2**53, result & ~0xFF, result)
            return result

        return rounded

    for name in ("add", "sub", "maximum"):
        setattr(torch, name, other(getattr(torch, name)))
