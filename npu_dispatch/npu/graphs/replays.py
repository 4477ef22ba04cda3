"""Functions that replay their own graphs, while nobody holds what these overwrite.

The backends of torch.compile use it: mode="reduce-overhead", and `npugraphs`.
CUDA's counterpart, torch._inductor.cudagraph_trees, saves and restores states of
CUDA's allocator. Here results stay where the capture put them, and another graph is
captured if somebody still holds what a replay would overwrite.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from npu_dispatch import _C
from npu_dispatch.npu.graphs.capture import (
    NPUGraph,
    graph,
    is_current_stream_capturing,
)

__all__ = ["Boxed", "Replays"]

Boxed = Callable[[list[Any]], Sequence[Any]]

# The most graphs of one function, and the most of them for the same shapes; several
# are needed where results of earlier calls are still in use.
_MOST, _MOST_ALIKE = 32, 4
# A capture costs as much as some tens of calls. So a function may capture as often as
# it may keep graphs, and once more for so many replays: what captures ever new shapes
# is then hardly slower than without graphs.
_REPLAYS_PER_CAPTURE = 64
# How many sets of shapes are known to have been called once.
_MOST_SEEN = 1024
# After so many captures in a row that failed, a function is called without graphs.
_MOST_FAILURES = 3

# A process has one capture at a time.
_one_capture = threading.RLock()
# Graphs that take turns on a stream share their memory; by device and stream.
_memories: dict[tuple[int, int], _C.ReplayMemory] = {}


def _memory(device: int, stream: int) -> _C.ReplayMemory:
    key = (device, stream)
    if key not in _memories:
        _memories[key] = _C.ReplayMemory()
    return _memories[key]


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


class Replays:
    """A function, called at first and then replayed, for each set of shapes.

    `fixed`: the inputs that are read where they are, such as parameters. Others are
    copied into the graph's own. `say` is given a reason why a call has no graph, each
    reason once.
    """

    _boxed_call = True  # it takes a list, and clears it

    def __init__(
        self, function: Boxed, fixed: set[int], device: int, say: Callable[[str], None]
    ) -> None:
        self._function = function
        self._fixed = fixed
        self._device = device
        self._tell = say
        self._said: set[str] = set()
        # What was used last comes first in the one, and last in the other.
        self._graphs: list[tuple[Any, _C.Replayed]] = []
        self._seen: OrderedDict[Any, None] = OrderedDict()
        self._replays = self._captures = self._failures = 0

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        for i, entry in enumerate(self._graphs):
            results = entry[1](inputs)
            if results is not None:
                self._replays += 1
                if i:
                    self._graphs.insert(0, self._graphs.pop(i))
                return results
        return self._without_a_replay(inputs)

    def _without_a_replay(self, inputs: list[Any]) -> Sequence[Any]:
        stream = _C.current_stream(self._device)
        key = (
            stream,
            *(
                (x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else x
                for x in inputs
            ),
        )
        if is_current_stream_capturing() or not self._known(key):
            return self._function(inputs)
        if not self._make_room(key, inputs):
            return self._function(inputs)
        try:
            with _one_capture:
                made = self._capture(inputs, stream)
        except RuntimeError as error:
            self._failed(error)
            return self._function(inputs)
        self._failures = 0
        self._graphs.insert(0, (key, made))
        results = made(inputs)
        assert results is not None
        return results

    def _known(self, key: Any) -> bool:
        """Return whether there was such a call before, and note that there was."""
        known = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return known

    def _make_room(self, key: Any, inputs: list[Any]) -> bool:
        """Return whether to capture; give up the graph that is needed least."""
        if self._failures == _MOST_FAILURES:
            return False
        if self._captures > _MOST + self._replays // _REPLAYS_PER_CAPTURE:
            self._say(
                f"fewer than {_REPLAYS_PER_CAPTURE} calls replay a graph before it is "
                "captured anew: its shapes, or the memory of its parameters, keep "
                "changing; pad the inputs"
            )
            return False
        alike = [entry for entry in self._graphs if entry[0] == key]
        if len(alike) == _MOST_ALIKE:
            moved = [entry for entry in alike if not entry[1].reads(inputs)]
            if not moved:
                self._say(
                    f"results of {_MOST_ALIKE} earlier calls are still in use: keep "
                    "clones, or detached ones of training"
                )
                return False
            self._graphs.remove(moved[-1])
        elif len(self._graphs) == _MOST:
            self._graphs.pop()
        return True

    def _capture(self, inputs: list[Any], stream: int) -> _C.Replayed:
        self._captures += 1
        copied = [
            i
            for i, x in enumerate(inputs)
            if isinstance(x, Tensor) and i not in self._fixed
        ]
        own = list(inputs)
        for i in copied:
            own[i] = _like(inputs[i])
        memory = _memory(self._device, stream)
        captured = NPUGraph()
        with graph(
            captured,
            pool=(0, memory.pool()),
            stream=graph.capture_stream_of(self._device),
            # Other threads may wait for their own work meanwhile.
            capture_error_mode="thread_local",
            check_input_liveness=False,  # it looks where its inputs are at each call
        ):
            results = list(self._function(list(own)))
        return _C.Replayed(memory, captured, stream, own, copied, results)

    def _failed(self, error: RuntimeError) -> None:
        self._failures += 1
        if isinstance(error, torch.OutOfMemoryError):
            self._graphs.clear()  # a later call may have the memory
        self._say(f"it cannot be captured: {error}")

    def _say(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            self._tell(why)
