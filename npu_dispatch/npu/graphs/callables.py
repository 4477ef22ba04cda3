"""make_graphed_callables: each call's forward and backward are one replay each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from npu_dispatch import _C
from npu_dispatch.npu.graphs import (
    NPUGraph,
    PoolHandle,
    graph,
    graph_pool_handle,
)
from npu_dispatch.npu.runtime.devices import synchronize
from npu_dispatch.npu.streams import Stream, StreamContext

Function = Callable[..., Any]


@dataclass(slots=True)
class _Piece:
    """One callable: its graphs, and the tensors that they read and write."""

    function: Function
    inputs: tuple[Tensor, ...]  # the user's, flat
    parameters: tuple[Tensor, ...]
    forward: NPUGraph
    backward: NPUGraph
    outputs: tuple[Any, ...] = ()
    spec: Any = None
    grad_outputs: tuple[Tensor | None, ...] = ()
    grad_inputs: tuple[Tensor | None, ...] = ()

    @property
    def surface(self) -> tuple[Tensor, ...]:
        return self.inputs + self.parameters

    @property
    def differentiable(self) -> tuple[Tensor, ...]:
        return tuple(t for t in self.surface if t.requires_grad)


def _check_module(module: nn.Module) -> None:
    hooks = ("_backward_hooks", "_forward_hooks", "_forward_pre_hooks")
    if any(getattr(module, name) for name in hooks):
        raise RuntimeError(
            "make_graphed_callables() takes modules without hooks, which a graph "
            "would not call; register them on the result"
        )
    if any(buffer.requires_grad for buffer in module.buffers()):
        raise RuntimeError(
            "make_graphed_callables() takes modules whose buffers do not require "
            "gradients; make such a buffer a parameter"
        )


def _flat(args: Any, index: int) -> tuple[Tensor, ...]:
    leaves = pytree.arg_tree_leaves(*args)
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            raise RuntimeError(
                "sample_args of make_graphed_callables() are tensors, alone or in "
                f"containers; callable {index} got {type(leaf).__name__}"
            )
    return tuple(leaves)


def _needs_grad(outputs: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(o for o in outputs if isinstance(o, Tensor) and o.requires_grad)


def _gradients(
    outputs: Sequence[Any],
    piece: _Piece,
    grad_outputs: Sequence[Tensor],
    allow_unused: bool,
) -> tuple[Tensor | None, ...]:
    return torch.autograd.grad(
        outputs=_needs_grad(outputs),
        inputs=piece.differentiable,
        grad_outputs=tuple(grad_outputs),
        only_inputs=True,
        allow_unused=allow_unused,
    )


def _warm_up(piece: _Piece, args: Any, rounds: int, allow_unused: bool) -> None:
    for _ in range(rounds):
        outputs = pytree.tree_leaves(piece.function(*args))
        needed = _needs_grad(outputs)
        if needed and piece.differentiable:
            grads = [torch.empty_like(o) for o in needed]
            _gradients(outputs, piece, grads, allow_unused)


def _capture_forward(piece: _Piece, args: Any, pool: PoolHandle) -> None:
    with graph(piece.forward, pool=pool):
        result = piece.function(*args)
    outputs, piece.spec = pytree.tree_flatten(result)
    piece.outputs = tuple(outputs)


def _capture_backward(piece: _Piece, pool: PoolHandle, allow_unused: bool) -> None:
    piece.grad_outputs = tuple(
        torch.empty_like(o) if isinstance(o, Tensor) and o.requires_grad else None
        for o in piece.outputs
    )
    found: tuple[Tensor | None, ...] = ()
    if _needs_grad(piece.outputs) and piece.differentiable:
        given = [g for g in piece.grad_outputs if g is not None]
        with graph(piece.backward, pool=pool):
            found = _gradients(piece.outputs, piece, given, allow_unused)
    grads = iter(found)
    piece.grad_inputs = tuple(
        next(grads, None) if t.requires_grad else None for t in piece.surface
    )


def _function_of(piece: _Piece) -> type[torch.autograd.Function]:
    count = len(piece.inputs)
    overwritten = _C.OverwriteCount(piece.forward, piece.backward)

    class Graphed(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *inputs: Tensor) -> tuple[Any, ...]:
            for static, given in zip(piece.inputs, inputs[:count], strict=True):
                if static.data_ptr() != given.data_ptr():
                    static.copy_(given)
            piece.forward.replay()
            ctx.overwritten = overwritten.now()
            return tuple(
                o.detach() if isinstance(o, Tensor) else o for o in piece.outputs
            )

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
            if ctx.overwritten != overwritten.now():
                raise RuntimeError(
                    "a callable of make_graphed_callables() has one place for what its "
                    "backward reads, which a later call of it, or the replay of a "
                    "graph that shares its pool, has overwritten: call backward "
                    "first, or make a graphed callable for each of the calls"
                )
            for static, given in zip(piece.grad_outputs, grads, strict=True):
                if static is not None:
                    static.copy_(given)
            piece.backward.replay()
            # Copies, because nobody knows who keeps a gradient, and for how long.
            return tuple(
                g.clone() if g is not None and needed else None
                for g, needed in zip(
                    piece.grad_inputs, ctx.needs_input_grad, strict=True
                )
            )

    return Graphed


def _callable_of(piece: _Piece) -> Function:
    function = _function_of(piece)

    def run(*args: Any) -> Any:
        inputs = pytree.arg_tree_leaves(*args)
        if len(inputs) != len(piece.inputs):
            raise RuntimeError(
                f"this graphed callable was captured with {len(piece.inputs)} "
                f"tensors and called with {len(inputs)}"
            )
        for i, (static, given) in enumerate(zip(piece.inputs, inputs, strict=True)):
            if not isinstance(given, Tensor) or static.shape != given.shape:
                raise RuntimeError(
                    f"argument {i} of this graphed callable has shape "
                    f"{list(static.shape)}, got "
                    f"{list(given.shape) if isinstance(given, Tensor) else given!r}"
                )
        out = function.apply(*inputs, *piece.parameters)  # type: ignore[no-untyped-call]
        return pytree.tree_unflatten(out, piece.spec)

    return run


def _replace_forward(module: nn.Module, graphed: Function) -> None:
    captured_training, original = module.training, module.forward

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module.training == captured_training:
            return graphed(*args, **kwargs)
        return original(*args, **kwargs)

    module.forward = forward


def make_graphed_callables(
    callables: Any,
    sample_args: Any,
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,
    pool: PoolHandle | None = None,
) -> Any:
    """Return callables that do the same work as replays, with gradients.

    `callables`: a module or function, or a tuple of them in the order of their use.
    `sample_args`: a tuple of tensors (which may be in containers), or one such tuple
    per callable; these tensors become the static inputs. A module stays the same
    object: its forward is replaced, and the replacement is used in the training mode
    of the capture only. Calls take tensors of the same shapes, and the next call
    overwrites their results. Gradients are copies, which nothing overwrites. A backward
    raises where a later call, or another graph of the pool, has overwritten what it
    needs. Double backward is not possible. Mirrors torch.cuda.make_graphed_callables.

    Raises RuntimeError for arguments other than tensors, for modules with hooks or
    with buffers that require gradients, and for autocast with its cache enabled.
    """
    if torch.is_autocast_enabled("npu") and torch.is_autocast_cache_enabled():
        raise RuntimeError(
            "make_graphed_callables() under autocast needs cache_enabled=False: "
            "cached casts would be made in one graph and used in another"
        )
    single = not isinstance(callables, tuple)
    functions: tuple[Function, ...] = (callables,) if single else callables
    samples = (sample_args,) if single else sample_args
    if len(samples) != len(functions):
        raise RuntimeError(
            f"{len(functions)} callables need as many sample_args, got {len(samples)}"
        )
    pieces = []
    for i, (function, args) in enumerate(zip(functions, samples, strict=True)):
        parameters: tuple[Tensor, ...] = ()
        if isinstance(function, nn.Module):
            _check_module(function)
            parameters = tuple(function.parameters())
        pieces.append(
            _Piece(function, _flat(args, i), parameters, NPUGraph(), NPUGraph())
        )
    handle = graph_pool_handle() if pool is None else pool

    synchronize()
    with StreamContext(Stream()):
        for piece, args in zip(pieces, samples, strict=True):
            _warm_up(piece, args, num_warmup_iters, allow_unused_input)
    synchronize()

    # The order in which a training step will replay them.
    for piece, args in zip(pieces, samples, strict=True):
        _capture_forward(piece, args, handle)
    # So no backward overwrites what another one reads, whichever comes first.
    for_backward = graph_pool_handle()
    for piece in reversed(pieces):
        _capture_backward(piece, for_backward, allow_unused_input)

    # What autograd has saved went back to the pool with the backward's capture. What
    # is left of its graph would tie the parameters to the capture's stream.
    for piece in pieces:
        piece.outputs = tuple(
            o.detach() if isinstance(o, Tensor) else o for o in piece.outputs
        )
        # Autograd refuses a backward that has saved an earlier call's result.
        piece.forward.note_changes_of(
            [o for o in piece.outputs if isinstance(o, Tensor)]
        )

    results: list[Any] = []
    for piece in pieces:
        graphed = _callable_of(piece)
        if isinstance(piece.function, nn.Module):
            _replace_forward(piece.function, graphed)
            results.append(piece.function)
        else:
            results.append(graphed)
    return results[0] if single else tuple(results)
