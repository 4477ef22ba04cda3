"""Compiled functions whose calls and backward need no Python.

AOTAutograd wraps what Inductor compiled: for training as a torch.autograd.Function of a
forward graph and its backward graph. What these wrappers do in Python at each call,
_C.compiled_function does in C++ for the usual case: results and saved tensors that are
plain tensors, and nothing else to keep right. Other functions, calls that are watched,
and first calls stay torch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._functorch import config
from torch._functorch._aot_autograd import runtime_wrappers
from torch._functorch._aot_autograd.schemas import OutputType, PlainTensorMeta
from torch._functorch._aot_autograd.utils import simple_wraps
from torch._inductor.output_code import CompiledFxGraph

from npu_dispatch import _C

__all__ = ["register"]

Boxed = Callable[[list[Any]], Any]
Graph = Callable[[list[Any]], Any]


def _of_inductor(compiled: Any) -> Any:
    """Return what Inductor returned, which AOTAutograd may have wrapped."""
    if isinstance(compiled, runtime_wrappers.SerializableCompiledFunction):
        compiled = compiled.compiled_fn
    return getattr(compiled, "_torchdynamo_orig_callable", compiled)


def _graph_of(compiled: Any) -> Graph:
    found = _of_inductor(compiled)
    if isinstance(found, CompiledFxGraph) and found.current_callable is not None:
        return found.current_callable
    graph: Graph = compiled
    return graph


def _is_plain(compiled: Any, about: Any) -> bool:
    """Return whether all that is to be kept right are tensors."""
    graph = _of_inductor(compiled)
    return (
        isinstance(graph, CompiledFxGraph)
        and "npu" in graph.device_types
        and not any(
            (
                about.num_symints_saved_for_bw,
                about.num_opaque_objects_saved_for_bw,
                about.num_graphsafe_rng_states,
                about.is_rng_op_functionalized,
                about.tokens,
                about.num_backward_tokens,
                about.num_mutated_inp_runtime_indices,
                about.num_mutated_graph_handled_indices_seen_by_autograd,
                about.indices_of_inputs_that_requires_grad_with_mutations_in_bw,
                about.num_outputs_aliased,
                about.num_unsafe_view_outputs,
                about.num_intermediate_bases,
                about.dynamic_outputs,
                about.dynamic_saved_tensors_idxs,
                about.grad_enabled_mutation is not None,
            )
        )
        and all(
            info.output_type is OutputType.non_alias
            and issubclass(info.raw_type, torch.Tensor)
            for info in about.output_info
        )
    )


def _tangents(about: Any) -> list[tuple[int, Any, Any]] | None:
    """Return the results that backward takes gradients of, with sizes and strides;
    None where these are not fixed."""
    results = [
        i for i, info in enumerate(about.output_info) if info.requires_grad_for_backward
    ]
    found = []
    for i, meta in zip(results, about.subclass_tangent_meta, strict=True):
        layout = meta.memory_format if isinstance(meta, PlainTensorMeta) else None
        if layout is None or layout.size is None or layout.stride is None:
            return None  # it is to have a memory format
        sizes, strides = tuple(layout.size), tuple(layout.stride)
        if not all(isinstance(n, int) for n in sizes + strides):
            return None
        found.append((i, sizes, strides))
    return found


def _without_python(
    torchs: Boxed,
    forward: Any,
    about: Any,
    backward: Callable[[], tuple[Graph | None, bool] | None],
    detached: list[int],
    tangents: list[tuple[int, Any, Any]],
) -> Boxed:
    """Return a callable that does what `torchs` does, after the first call."""
    called = False

    def after_a_call() -> tuple[Graph | None, bool] | None:
        nonlocal called
        if called:
            return backward()
        called = True
        return None

    function = _C.compiled_function(
        torchs,
        _graph_of(forward),
        after_a_call,
        len(about.input_info),
        detached,
        [info.requires_grad for info in about.output_info],
        about.num_tensors_saved_with_no_vc_check or 0,
        tangents,
        about.deterministic is not False,
    )

    @simple_wraps(torchs)
    def call(args: list[Any]) -> Any:
        return function(args)

    return call


def _training(spec: Any, torchs: Boxed) -> Boxed:
    about = spec.fw_metadata
    if (
        spec.maybe_subclass_meta is not None
        or spec.backward_state_indices
        or runtime_wrappers._should_disable_saved_tensors_hooks()
        or torch._dynamo.config.compiled_autograd
        or not _is_plain(spec.compiled_fw_func, about)
    ):
        return torchs
    tangents = _tangents(about)
    if tangents is None:
        return torchs

    def backward() -> tuple[Graph, bool] | None:
        compiled = spec.npu_made.compiled_bw  # when it is first needed
        if compiled is None:
            return None
        donates = config.donated_buffer and bool(about.bw_donated_idxs)
        return _graph_of(compiled), donates

    detached = list(spec.indices_of_inps_to_detach)
    forward = spec.compiled_fw_func
    return _without_python(torchs, forward, about, backward, detached, tangents)


# Which versions have the parts of AOTAutograd that are used here as they were tried.
# Elsewhere its Python stays.
TRIED = "2.13."


def register() -> None:
    """Let AOTAutograd make such functions for npu, where torch is as it was tried."""
    if not torch.__version__.startswith(TRIED):
        return
    factory = runtime_wrappers._AOTDispatchAutogradFunctionFactory
    build = factory.build
    train = runtime_wrappers.AOTDispatchAutograd.post_compile
    infer = runtime_wrappers.RuntimeWrapper.post_compile

    def build_and_note(self: Any) -> Any:
        self.spec.npu_made = build(self)
        return self.spec.npu_made

    def for_training(spec: Any) -> Boxed:
        return _training(spec, train(spec))

    def for_inference(
        self: Any, compiled: Any, aot_config: Any, *, runtime_metadata: Any
    ) -> Boxed:
        torchs = infer(self, compiled, aot_config, runtime_metadata=runtime_metadata)
        if self.trace_joint or not _is_plain(compiled, runtime_metadata):
            return torchs
        return _without_python(
            torchs, compiled, runtime_metadata, lambda: (None, False), [], []
        )

    factory.build = build_and_note  # type: ignore[method-assign]
    runtime_wrappers.AOTDispatchAutograd.post_compile = staticmethod(for_training)  # type: ignore[method-assign]
    runtime_wrappers.RuntimeWrapper.post_compile = for_inference  # type: ignore[assignment, method-assign]
