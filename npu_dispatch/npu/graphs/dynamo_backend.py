"""The torch.compile backend `npugraphs`, which replays what AOTAutograd traced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_dispatch.npu.graphs.replays import Boxed, Replays

_log = logging.getLogger(__name__)


def _say(why: str) -> None:
    _log.warning("npugraphs: runs without a graph where %s", why)


def _compiled(
    traced: torch.fx.GraphModule, inputs: Sequence[Any], fixed: set[int]
) -> Boxed:
    from torch._dynamo.backends import cudagraphs
    from torch._dynamo.backends.debugging import boxed_nop

    run: Boxed = boxed_nop(traced, list(inputs))
    devices = list(cudagraphs.get_device_node_mapping(traced))
    if len(devices) != 1 or devices[0].type != "npu":
        return run
    # A function must make changes in place where the caller has the tensor.
    changed = cudagraphs.find_input_mutations(traced.graph)
    replays = Replays(run, fixed | changed, devices[0].index or 0, _say)

    def replay(inputs: list[Any]) -> Sequence[Any]:
        return replays(inputs)

    replay._boxed_call = True  # type: ignore[attr-defined]
    return replay


def npugraphs(module: torch.fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
    """Compile with AOTAutograd; capture forward and backward at their second call.

    Parameters and what forward saves for backward are read where they are, other
    inputs are copied. New shapes are captured anew. What cannot be captured runs
    eagerly. Mirrors torch's backend `cudagraphs`.
    """
    from torch._dynamo.backends.common import aot_autograd
    from torch._guards import TracingContext
    from torch._inductor.utils import count_tangents

    def forward(traced: torch.fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
        context = TracingContext.try_get()
        metadata = context and context.fw_metadata
        fixed = set(metadata.static_input_indices or ()) if metadata else set()
        return _compiled(traced, inputs, fixed)

    def backward(traced: torch.fx.GraphModule, inputs: Sequence[Any]) -> Boxed:
        return _compiled(traced, inputs, set(range(count_tangents(traced))))

    compiler: Callable[..., Any] = aot_autograd(
        fw_compiler=forward, bw_compiler=backward
    )
    return compiler(module, inputs)
