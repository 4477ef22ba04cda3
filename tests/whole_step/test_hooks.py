"""Hooks run at each step: with one, a step runs as the plain loop does."""

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from step_loop import Both, batches
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from npu_dispatch.observe.segment import StatsReader, segment_file

DATA = batches(9)
# Registers a hook that changes the result, and notes its calls; returns its handle.
Register = Callable[[nn.Module, torch.optim.Optimizer, list[str]], Any]


def tensor(model: nn.Module, _: Any, calls: list[str]) -> Any:
    def triple(gradient: torch.Tensor) -> torch.Tensor:
        calls.append("tensor")
        return gradient * 3

    return model[0].weight.register_hook(triple)


def accumulated(model: nn.Module, _: Any, calls: list[str]) -> Any:
    def triple(p: torch.Tensor) -> None:
        calls.append("accumulated")
        p.grad.mul_(3)

    return model[0].weight.register_post_accumulate_grad_hook(triple)


def node(model: nn.Module, _: Any, calls: list[str]) -> Any:
    weight = model[0].weight
    # The parameter does not hold the node that its hook belongs to.
    model.node = weight.expand_as(weight).grad_fn.next_functions[0][0]
    return model.node.register_hook(lambda *_: calls.append("node"))


def several_gradients(model: nn.Module, _: Any, calls: list[str]) -> Any:
    return torch.autograd.graph.register_multi_grad_hook(
        tuple(model.parameters()), lambda _: calls.append("gradients")
    )


def on_step(register: str) -> Register:
    def made(model: nn.Module, optimizer: Any, calls: list[str]) -> Any:
        def hook(stepped: Any, *_: Any) -> None:
            if stepped is optimizer:
                calls.append(register)
                model[0].weight.data.add_(model[0].weight.grad)

        where = optimizer if hasattr(optimizer, register) else optimizers
        return getattr(where, register)(hook)

    return made


def on_module(register: str, *, of_all: bool) -> Register:
    def made(model: nn.Module, _: Any, calls: list[str]) -> Any:
        def hook(module: nn.Module, *_: Any) -> None:
            if module is model[2] or module is model[3]:
                calls.append(register)

        return getattr(modules if of_all else model[3], register)(hook)

    return made


OF_MODULES = (
    *("register_forward_pre_hook", "register_forward_hook"),
    *("register_full_backward_pre_hook", "register_full_backward_hook"),
)
HOOKS: dict[str, Register] = {
    "of a tensor": tensor,
    "of an accumulated gradient": accumulated,
    "of a node of autograd": node,
    "of several gradients": several_gradients,
    "before a step": on_step("register_step_pre_hook"),
    "after a step": on_step("register_step_post_hook"),
    "before each step": on_step("register_optimizer_step_pre_hook"),
    "after each step": on_step("register_optimizer_step_post_hook"),
    **{f"{kind} of a module": on_module(kind, of_all=False) for kind in OF_MODULES},
    **{
        f"{kind} of all modules": on_module(
            kind.replace("register_full", "register_module_full").replace(
                "register_forward", "register_module_forward"
            ),
            of_all=True,
        )
        for kind in OF_MODULES
    },
}


@contextlib.contextmanager
def hooked(register: Register, *of: Any) -> Iterator[list[str]]:
    calls: list[str] = []
    handle = register(*of, calls)
    try:
        yield calls
    finally:
        handle.remove()


@pytest.mark.parametrize("kind", HOOKS)
@pytest.mark.parametrize(("begin", "end"), [(0, 5), (5, 7)])
def test_is_called_at_each_step_from_its_first_to_its_last(kind, begin, end):
    both = Both(lr=0.05)
    both.train(DATA[:begin])
    assert both.step.replays == max(0, begin - 2)
    with (
        pytest.warns(UserWarning, match="runs eagerly from now on") as caught,
        hooked(HOOKS[kind], both.theirs, both.their_optimizer) as wanted,
        hooked(HOOKS[kind], both.ours, both.our_optimizer) as calls,
    ):
        both.train(DATA[begin:end])
    both.train(DATA[end:])

    assert calls == wanted
    both.compare()
    assert len([w for w in caught if "compile_step" in str(w.message)]) == 1


def test_that_dynamo_has_compiled_may_go():
    both = Both(lr=0.05)
    hooks = [
        model[2].register_forward_hook(lambda *given: given[-1] * 2)
        for model in (both.theirs, both.ours)
    ]

    both.train(DATA[:5])
    for hook in hooks:
        hook.remove()
    both.train(DATA[5:])

    both.compare(2)


@contextlib.contextmanager
def doubled() -> Iterator[None]:
    """Save twice the tensors that the forward pass saves."""
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: t * 2 if t.is_floating_point() else t, lambda t: t
    ):
        yield


def test_of_saved_tensors_change_the_steps_that_are_taken_with_them():
    both = Both(lr=0.05)
    both.train(DATA[:5])
    with doubled(), pytest.warns(UserWarning, match="saved tensors"):
        both.train(DATA[5:7])
    both.train(DATA[7:])

    both.compare()


def test_that_count_steps_end_no_replays():
    """torch.npu counts steps itself, by a hook of all optimizers."""
    both = Both(lr=0.05)
    with StatsReader(segment_file()) as reader:
        before = reader.process().optimizer_steps
        for batch in DATA:
            both.step(*batch)
        counted = reader.process().optimizer_steps - before

    assert (both.step.reason, both.step.captures) == (None, 1)
    assert counted >= len(DATA)
