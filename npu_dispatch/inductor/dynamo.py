"""What Dynamo does with streams, events and old tensor types of `npu`.

This is registered when torch._dynamo is imported, because tracing starts before
Inductor is asked anything. It imports nothing more.
"""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch._dynamo import trace_rules
from torch._dynamo.exc import unimplemented
from torch._dynamo.utils import tensortype_to_dtype
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.tensor import TensorVariable

from npu_dispatch.npu.patches.changes import replace


def _is_ours(value: object) -> bool:
    return type(value).__module__.startswith("npu_dispatch.")


def _break_on_npu(traced: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Break the graph where a stream or an event is one of npu's."""
    value = self.get_stream().value if hasattr(self, "get_stream") else self.value
    device = getattr(value, "device", None)
    ours = _is_ours(value)  # an event belongs to no device before it is recorded
    if isinstance(device, torch.device):
        ours = device.type == "npu"
    if ours:
        unimplemented(
            gb_type="npu stream or event",
            context=f"{type(self).__name__} {args[1:2]}",
            explanation="What a stream is given in a compiled function is "
            "ordered by calls between its graphs, not inside of one.",
            hints=["Keep streams and events outside of fullgraph functions."],
        )
    return traced(self, *args, **kwargs)


def _call_isinstance(
    traced: Any, self: Any, tx: Any, arg: VariableTracker, kinds: VariableTracker
) -> Any:
    """Ask an old tensor type, such as torch.npu.FloatTensor, about the tensor itself.

    Dynamo knows those of cpu only, by their dtypes, and asks any other class about the
    class of a tensor, which says neither device nor dtype.
    """
    if not isinstance(arg, TensorVariable) or not kinds.is_python_constant():
        return traced(self, tx, arg, kinds)
    asked = kinds.as_python_constant()
    asked = asked if isinstance(asked, tuple) else get_args(asked) or (asked,)
    example = arg.as_proxy().node.meta.get("example_value")
    if example is None:
        return traced(self, tx, arg, kinds)
    if any(_is_ours(kind) and isinstance(example, kind) for kind in asked):
        return VariableTracker.build(tx, True)
    cpus = tensortype_to_dtype if example.device.type == "npu" else {}
    others = [k for k in asked if not _is_ours(k) and k not in cpus]
    if len(others) == len(asked):
        return traced(self, tx, arg, kinds)
    return traced(self, tx, arg, VariableTracker.build(tx, tuple(others)))


def register() -> None:
    """Break graphs at calls into torch.npu, and at streams and events.

    Inductor orders streams inside a graph only for the devices that it names. For
    others, its program would use tensors that it has freed.
    """
    trace_rules.add("npu_dispatch.npu")
    streams = "torch._dynamo.variables.streams:"
    replace(
        _break_on_npu,
        f"{streams}StreamVariable.call_method",
        f"{streams}EventVariable.call_method",
        f"{streams}StreamContextVariable.enter",
        f"{streams}StreamContextVariable.exit",
    )
    builtin = "torch._dynamo.variables.builtin:BuiltinVariable"
    replace(_call_isinstance, f"{builtin}.call_isinstance")
