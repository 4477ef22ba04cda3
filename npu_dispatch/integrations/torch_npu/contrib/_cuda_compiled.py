"""torch.compile where torch.cuda means the npu."""

from __future__ import annotations

from typing import Any

from npu_dispatch import import_alias


def _answer_as_eager() -> None:
    """Let Dynamo say of `is_cuda` what a tensor says."""
    from torch._dynamo.variables.base import VariableTracker
    from torch._dynamo.variables.tensor import TensorVariable

    def is_cuda(self: Any, tx: Any) -> Any:
        if self.device is None:
            return None
        return VariableTracker.build(tx, self.device.type == "npu")

    variable: Any = TensorVariable
    variable.method_attr_is_cuda = is_cuda


def _capture_on_npu() -> None:
    """Let the backend "cudagraphs" be "npugraphs"."""
    from torch._dynamo.backends import cudagraphs

    from npu_dispatch.npu.graphs.dynamo_backend import npugraphs

    backend: Any = cudagraphs
    backend.cudagraphs = npugraphs


def fill_in() -> None:
    """Change Dynamo when it is imported, or now."""
    import_alias.after_import("torch._dynamo.variables.tensor", _answer_as_eager)
    import_alias.after_import("torch._dynamo.backends.cudagraphs", _capture_on_npu)
