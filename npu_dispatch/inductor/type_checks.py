"""isinstance(tensor, torch.npu.FloatTensor) in compiled functions.

Dynamo knows the old tensor types of cpu only, by their dtypes, and asks any other
class about the class of a tensor, which says neither device nor dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, get_args

from torch._dynamo.utils import tensortype_to_dtype
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import BuiltinVariable
from torch._dynamo.variables.tensor import TensorVariable

__all__ = ["register"]


def _is_ours(kind: object) -> bool:
    return type(kind).__module__.startswith("npu_dispatch.")


def register() -> None:
    """Let Dynamo ask such a type about the tensor itself."""
    dynamo: Any = BuiltinVariable
    traced: Callable[..., VariableTracker] = dynamo.call_isinstance

    def call_isinstance(
        self: Any, tx: Any, arg: VariableTracker, kinds: VariableTracker
    ) -> VariableTracker:
        if not isinstance(arg, TensorVariable) or not kinds.is_python_constant():
            return traced(self, tx, arg, kinds)
        asked = kinds.as_python_constant()
        asked = asked if isinstance(asked, tuple) else get_args(asked) or (asked,)
        example = arg.as_proxy().node.meta.get("example_value")
        if example is None:
            return traced(self, tx, arg, kinds)
        if any(_is_ours(kind) and isinstance(example, kind) for kind in asked):
            answer: VariableTracker = VariableTracker.build(tx, True)
            return answer
        cpus = tensortype_to_dtype if example.device.type == "npu" else {}
        others = [k for k in asked if not _is_ours(k) and k not in cpus]
        if len(others) == len(asked):
            return traced(self, tx, arg, kinds)
        return traced(self, tx, arg, VariableTracker.build(tx, tuple(others)))

    dynamo.call_isinstance = call_isinstance
