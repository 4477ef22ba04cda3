"""The torch.compile backend `npugraphs`, which replays what AOTAutograd traced."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from npu_dispatch.npu.graphs.capture import NPUGraph, graph
from npu_dispatch.npu.runtime.devices import synchronize
from npu_dispatch.npu.streams import Stream, StreamContext

__all__ = ["npugraphs"]

_log = logging.getLogger(__name__)

Function = Callable[[list[Any]], Sequence[Any]]

# The most captures of one function for one set of shapes. Another one is made where
# results of the earlier ones are still in use.
_MAX_CAPTURES = 4


def _uses(tensor: Tensor) -> int:
    """Return how many owners the tensor's memory has."""
    storage = tensor.untyped_storage()
    return torch._C._storage_Use_Count(storage._cdata)


def _like(tensor: Tensor) -> Tensor:
    made = torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    return made.copy_(tensor)


class _Capture:
    """One graph, the inputs it reads, and the results it writes."""

    def __init__(self, function: Function, inputs: list[Any], copied: set[int]) -> None:
        self.copied = sorted(copied)
        self.inputs = [_like(t) if i in copied else t for i, t in enumerate(inputs)]
        synchronize()
        with StreamContext(Stream()):
            function(list(self.inputs))
        self.graph = NPUGraph()
        with graph(self.graph):
            self.outputs = list(function(list(self.inputs)))
        # The results that a replay overwrites; a result that is a parameter is none.
        kept = {t.data_ptr() for i, t in self._fixed()}
        self._written = [
            t
            for t in [*self.outputs, *(self.inputs[i] for i in self.copied)]
            if isinstance(t, Tensor) and t.data_ptr() not in kept
        ]
        self._owners = [_uses(t) for t in self._written]

    def _fixed(self) -> list[tuple[int, Tensor]]:
        return [
            (i, t)
            for i, t in enumerate(self.inputs)
            if isinstance(t, Tensor) and i not in self.copied
        ]

    def moved(self, inputs: list[Any]) -> set[int]:
        """Return the inputs that are not where the graph reads them."""
        return {i for i, t in self._fixed() if t.data_ptr() != inputs[i].data_ptr()}

    def free(self) -> bool:
        """Return whether no result of the last replay is still held."""
        return all(
            _uses(t) <= n for t, n in zip(self._written, self._owners, strict=True)
        )

    def run(self, inputs: list[Any]) -> list[Any]:
        for i in self.copied:
            self.inputs[i].copy_(inputs[i])
        self.graph.replay()
        return [o.detach() if isinstance(o, Tensor) else o for o in self.outputs]


class _Captured:
    """A compiled function, which for each set of shapes runs eagerly, then replays."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._seen: dict[Any, list[int]] = {}  # where the inputs of a call were
        self._copied: dict[Any, set[int]] = {}
        self._captures: dict[Any, list[_Capture]] = {}
        self._eager = False

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        if self._eager or not self._capturable(inputs):
            return self._function(inputs)
        given = list(inputs)
        inputs.clear()  # as a boxed function does: results may reuse them
        key = tuple(
            (t.shape, t.stride(), t.dtype) if isinstance(t, Tensor) else t
            for t in given
        )
        where = [t.data_ptr() if isinstance(t, Tensor) else 0 for t in given]
        if key not in self._seen:
            self._seen[key] = where
            return self._function(given)
        copied = self._copied.setdefault(
            key,
            {i for i, at in enumerate(where) if at != self._seen[key][i]},
        )
        return self._replay(key, given, copied)

    @staticmethod
    def _capturable(inputs: list[Any]) -> bool:
        tensors = [t for t in inputs if isinstance(t, Tensor)]
        return (
            bool(tensors)
            and all(t.device.type == "npu" for t in tensors)
            and not torch.npu.is_current_stream_capturing()  # type: ignore[attr-defined]
        )

    def _replay(self, key: Any, given: list[Any], copied: set[int]) -> Sequence[Any]:
        captures = self._captures.setdefault(key, [])
        moved = set().union(*(c.moved(given) for c in captures))
        if moved:
            copied |= moved
            captures.clear()
        for capture in captures:
            if capture.free():
                return capture.run(given)
        if len(captures) == _MAX_CAPTURES:
            return self._function(given)
        try:
            captures.append(_Capture(self._function, given, copied))
        except RuntimeError as error:
            _log.warning("npugraphs: runs without graphs: %s", error)
            self._eager = True
            captures.clear()
            return self._function(given)
        return captures[-1].run(given)


def npugraphs(module: torch.fx.GraphModule, inputs: Sequence[Any], **_: Any) -> Any:
    """Compile with AOTAutograd; capture forward and backward at their second call.

    Inputs that stay where they are, such as parameters, are read in place, and others
    are copied. New shapes are captured anew. What cannot be captured runs eagerly.
    """
    from torch._dynamo.backends.common import aot_autograd

    def compile_(traced: torch.fx.GraphModule, _: Sequence[Any]) -> Function:
        captured = _Captured(lambda args: traced(*args))

        def run(inputs: list[Any]) -> Sequence[Any]:
            return captured(inputs)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run

    compiler: Any = aot_autograd(fw_compiler=compile_, bw_compiler=compile_)
    return compiler(module, inputs)
