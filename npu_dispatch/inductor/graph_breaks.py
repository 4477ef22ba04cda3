"""Where Dynamo stops tracing: streams and events of `npu`.

This is registered when torch._dynamo is imported, because tracing starts before
Inductor is asked anything. It imports nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import trace_rules
from torch._dynamo.exc import unimplemented
from torch._dynamo.variables.streams import (
    EventVariable,
    StreamContextVariable,
    StreamVariable,
)

__all__ = ["register"]


def _is_npu(value: object) -> bool:
    device = getattr(value, "device", None)
    if isinstance(device, torch.device):
        return device.type == "npu"
    # An event belongs to no device before it is recorded.
    return type(value).__module__.startswith("npu_dispatch.")


def _break_on_npu(
    variable: type[Any], method: str, value_of: Callable[[Any], object]
) -> None:
    """Let a method of a Dynamo variable break the graph where it is one of npu's."""
    traced = getattr(variable, method)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_npu(value_of(self)):
            unimplemented(
                gb_type="npu stream or event",
                context=f"{variable.__name__}.{method} {args[1:2]}",
                explanation="What a stream is given in a compiled function is "
                "ordered by calls between its graphs, not inside of one.",
                hints=["Keep streams and events outside of fullgraph functions."],
            )
        return traced(self, *args, **kwargs)

    setattr(variable, method, call)


def register() -> None:
    """Break graphs at calls into torch.npu, and at streams and events.

    Inductor orders streams inside a graph only for the devices that it names. For
    others, its program would use tensors that it has freed.
    """
    trace_rules.add("npu_dispatch.npu")
    _break_on_npu(StreamVariable, "call_method", lambda v: v.value)
    _break_on_npu(EventVariable, "call_method", lambda v: v.value)
    for method in ("enter", "exit"):
        _break_on_npu(
            StreamContextVariable,
            method,
            lambda v: v.get_stream().value,
        )
