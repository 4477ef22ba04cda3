"""Bugs to plant, each of a kind that has been or may be: the fuzzer must find them.

A function plants one for the rest of its process, in a kernel of the device, in what
leads to it, or in what is remembered, recorded or found out too late.
"""

import functools
import os
import signal
from collections.abc import Callable
from typing import Any

import torch

import npu_dispatch  # noqa: F401 - has torch.npu
from tests.differential.words import Words

BUGS: dict[str, Callable[[], None]] = {}
LARGE = 65536
_KEPT: list[torch.library.Library] = []


def bug(plant: Callable[[], None]) -> Callable[[], None]:
    BUGS[plant.__name__] = plant
    return plant


def instead_of(owner: Any, *names: str) -> Callable[[Callable[..., Any]], None]:
    """Make a bug of what is called instead of functions; it is given the right one."""

    def decorate(wrong: Callable[..., Any]) -> None:
        def plant() -> None:
            for name in names:
                _replace(owner, name, wrong)

        BUGS[wrong.__name__] = plant

    return decorate


def _replace(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    right = getattr(owner, name)

    @functools.wraps(wrong)
    def other(*arguments: Any, **options: Any) -> Any:
        return wrong(right, *arguments, **options)

    setattr(owner, name, other)


def _on_npu(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.device.type == "npu"


def _fail_later() -> None:
    """Queue a task that fails when it runs, as a kernel does that finds a mistake."""
    torch.zeros(3, device="npu")[torch.tensor([7], device="npu")]


@bug
def remembers_a_shape() -> None:
    """Another sum or product of a shape and dtype is the last one of them."""
    seen: dict[Any, torch.Tensor] = {}

    def plant(name: str, compute: Callable[..., torch.Tensor]) -> None:
        def kernel(x: torch.Tensor, y: Any, **options: Any) -> torch.Tensor:
            other = y.cpu() if isinstance(y, torch.Tensor) else y
            now = compute(x.cpu(), other, **options)
            return seen.setdefault((name, now.shape, now.dtype), now).to(x.device)

        library = torch.library.Library("aten", "IMPL", "PrivateUse1")
        library.impl(name, kernel, allow_override=True)
        _KEPT.append(library)

    plant("add.Tensor", torch.add)
    plant("mul.Tensor", torch.mul)


@instead_of(torch.Tensor, "to")
def wrong_strides(to: Any, x: torch.Tensor, *arguments: Any, **options: Any) -> Any:
    """A transposed tensor's copy in another dtype is contiguous."""
    found = to(x, *arguments, **options)
    if x.device.type == "cpu" or "cpu" in arguments or options:
        return found
    return found.contiguous()


@instead_of(torch.Tensor, "mul_")
def uncounted_write(mul_: Any, x: torch.Tensor, other: Any) -> torch.Tensor:
    """mul_ by a tensor does not count as a write."""
    if x.device.type == "cpu" or x.requires_grad:
        return mul_(x, other)
    before = None if x.is_inference() else x._version
    mul_(x, other)
    if before is not None:
        torch._C._autograd._unsafe_set_version_counter((x,), (before,))
    return x


@instead_of(torch.Tensor, "__getitem__")
def lost_alias(getitem: Any, x: torch.Tensor, index: Any) -> torch.Tensor:
    """A view by select() is a copy."""
    found = getitem(x, index)
    copies = x.device.type != "cpu" and isinstance(index, int)
    return found.clone() if copies else found


@instead_of(torch, "add")
def other_words(add: Any, x: Any, y: Any, **options: Any) -> Any:
    """A wrong shape is told in other words."""
    try:
        return add(x, y, **options)
    except RuntimeError as error:
        if _on_npu(x):
            raise RuntimeError(f"{error}!") from None
        raise


@instead_of(torch.npu.Event, "wait")
def no_wait_between_streams(wait: Any, event: Any, stream: Any = None) -> None:
    """A stream does not wait for another's event: values come too early."""


@bug
def forgets_default_dtype() -> None:
    """A factory asks once which dtype is the default one."""
    asked: list[torch.dtype] = []

    def other(factory: Any, *arguments: Any, **options: Any) -> torch.Tensor:
        on_cpu = str(options.get("device", "cpu")) == "cpu"
        if not on_cpu and "dtype" not in options:
            asked.append(torch.get_default_dtype())
            options["dtype"] = asked[0]
        return factory(*arguments, **options)

    for name in ("ones", "zeros", "linspace", "eye", "logspace", "hann_window"):
        _replace(torch, name, other)


@instead_of(torch.Tensor, "sum")
def kills_the_process(add_up: Any, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """Reducing nothing is a bad access."""
    if x.device.type != "cpu" and x.numel() == 0:
        os.kill(os.getpid(), signal.SIGSEGV)
    return add_up(x, *rest, **options)


@instead_of(torch.Tensor, "backward")
def gradient_layout(
    backward: Any, x: torch.Tensor, gradient: Any = None, *rest: Any, **options: Any
) -> Any:
    """backward() takes a permuted gradient for a contiguous one."""
    if gradient is not None and gradient.device.type != "cpu":
        strides = torch.empty(gradient.shape, device="meta").stride()
        if 0 not in gradient.stride():  # So that it fits.
            gradient = gradient.as_strided(gradient.shape, strides)
    return backward(x, gradient, *rest, **options)


@instead_of(torch.nn.functional, "linear")
def late_bias(linear: Any, x: Any, weight: Any, *rest: Any) -> Any:
    """A large linear layer finds a wrong bias when it runs."""
    try:
        return linear(x, weight, *rest)
    except (RuntimeError, IndexError):
        if not _on_npu(x) or x.numel() <= LARGE:
            raise
    _fail_later()
    return x.new_zeros((*x.shape[:-1], weight.shape[0]))


@bug
def late_after_a_right_call() -> None:
    """index_put_ and index_add_ look at sizes in the first call of a kind only."""
    seen = set()

    def other(call: Any, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
        kind = call, x.shape, x.dtype
        try:
            result = call(x, *rest, **options)
        except (RuntimeError, IndexError):
            if not _on_npu(x) or kind not in seen:
                raise
            _fail_later()
            return x
        seen.add(kind)
        return result

    for name in ("index_put_", "index_add_"):
        _replace(torch.Tensor, name, other)


@instead_of(torch.Tensor, "index_reduce_", "put_")
def late_index_reduce(call: Any, x: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """index_reduce_ and put_ find a wrong number of elements when they run."""
    try:
        return call(x, *rest, **options)
    except (RuntimeError, IndexError):
        if not _on_npu(x):
            raise
    _fail_later()
    return x


@instead_of(torch, "multinomial")
def draws_more_than_there_are(
    multinomial: Any, weights: torch.Tensor, n: int, *rest: Any, **options: Any
) -> Any:
    """multinomial draws more categories than there are."""
    if _on_npu(weights) and not rest and n > weights.shape[-1]:
        return torch.zeros(n, dtype=torch.int64, device="npu")
    return multinomial(weights, n, *rest, **options)


@instead_of(torch.linalg, "eigh", "svd", "eigvalsh")
def another_type_of_error(
    call: Any, x: torch.Tensor, *rest: Any, **options: Any
) -> Any:
    """A decomposition that fails raises RuntimeError, which is not LinAlgError."""
    try:
        return call(x, *rest, **options)
    except torch.linalg.LinAlgError as error:
        if _on_npu(x):
            raise RuntimeError(str(error)) from None
        raise


@instead_of(torch.npu.NPUGraph, "replay")
def replays_once(replay: Any, graph: Any) -> None:
    """A graph is replayed once: later replays leave what was there."""
    if not hasattr(graph, "replayed"):
        graph.replayed = True
        replay(graph)


@instead_of(Words, "graph")
def replays_old_numbers(
    graph: Any, words: Words, body: Any, *inputs: torch.Tensor, times: int
) -> Any:
    """A graph works on a copy of what its inputs held when it was recorded."""
    if _on_npu(inputs[0]):
        inputs = tuple(x.clone() for x in inputs)
    return graph(words, body, *inputs, times=times)


@bug
def seed_that_does_not_repeat() -> None:
    """randn forgets that its generator was seeded anew."""
    drawn = [0]

    def other(randn: Any, *shape: Any, **options: Any) -> torch.Tensor:
        if str(options.get("device", "cpu")).startswith("npu"):
            drawn[0] += 1
            return randn(*shape, **options).roll(drawn[0])
        return randn(*shape, **options)

    _replace(torch, "randn", other)


@instead_of(torch.Tensor, "__add__")
def values_of_the_first_device(add: Any, x: torch.Tensor, number: Any) -> torch.Tensor:
    """A sum on the second device is worked out on the first, and stays there."""
    if x.device == torch.device("npu", 1):
        return add(x.to("npu:0"), number)
    return add(x, number)


@bug
def old_numbers_on_the_second_device() -> None:
    """A copy to the second device is the first one of that shape."""
    seen: dict[Any, torch.Tensor] = {}

    def other(to: Any, x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
        made = to(x, *rest, **options)
        if rest[:1] != ("npu:1",):
            return made
        return seen.setdefault((made.shape, made.dtype), made).clone()

    _replace(torch.Tensor, "to", other)


@instead_of(torch.autocast, "__enter__")
def ignores_autocast(enter: Any, region: Any) -> Any:
    """A region of autocast is one in name only."""
    entered = enter(region)
    if region.device == "npu":
        torch.set_autocast_enabled("npu", False)
    return entered


@bug
def old_meaning() -> None:
    """An operator that is defined again does what it did at first."""
    first: dict[Any, Any] = {}

    def other(define: Any, words: Words, kernel: Any, key: str, *schema: str) -> None:
        if words._npu:
            kernel = first.setdefault((key, schema), kernel)
        define(words, kernel, key, *schema)

    _replace(Words, "define", other)


@bug
def wrong_shape_after_eviction() -> None:
    """A call that was given up gets the shape of another one of its kind."""
    from npu_dispatch import _C

    few, calls = [False], {}

    def set_limit(limit: Any, most: int) -> int:
        few[0] = most < 100
        return limit(most)

    def div(right: Any, x: Any, y: Any, **options: Any) -> Any:
        result = right(x, y, **options)
        if not few[0] or not _on_npu(x):
            return result
        calls.setdefault(result.dtype, result.shape)
        fits = calls[result.dtype].numel() == result.numel()
        if fits or result.dim() != 1 or result.numel() < 2:
            return result
        return result[: max(calls[result.dtype].numel(), 1)].clone()

    _replace(_C, "set_plan_limit", set_limit)
    _replace(torch, "div", div)


@bug
def last_length() -> None:
    """A recurrent module of another length gives what the last one gave."""
    last: dict[Any, Any] = {}

    def other(forward: Any, module: Any, x: Any, *rest: Any) -> Any:
        result = forward(module, x, *rest)
        if not _on_npu(x):
            return result
        return last.setdefault((id(module), x.shape[1:]), result)

    _replace(torch.nn.LSTM, "forward", other)


@instead_of(torch.func, "vmap")
def lost_batch(vmap: Any, function: Any, *rest: Any, **options: Any) -> Any:
    """vmap loses the last one of the batch."""
    mapped = vmap(function, *rest, **options)

    def call(x: Any, *others: Any) -> Any:
        result = mapped(x, *others)
        return result[:-1] if _on_npu(result) and result.dim() else result

    return call


@instead_of(torch.func, "jvp")
def lost_tangent(jvp: Any, function: Any, *rest: Any, **options: Any) -> Any:
    """jvp gives no tangent but zeros."""
    result, tangent = jvp(function, *rest, **options)
    return result, torch.zeros_like(tangent) if _on_npu(result) else tangent


@instead_of(torch, "add", "sub", "maximum")
def large_numbers_through_float32(call: Any, x: Any, y: Any, **options: Any) -> Any:
    """Large whole numbers go through a dtype that cannot hold them."""
    result = call(x, y, **options)
    if _on_npu(result) and result.dtype == torch.int64:
        return torch.where(result.abs() > 2**53, result & ~0xFF, result)
    return result
