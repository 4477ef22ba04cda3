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
from npu_dispatch.npu.graphs import (
    NPUGraph,
    PoolHandle,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
)

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
_TOO_MANY = (
    f"fewer than {_REPLAYS_PER_CAPTURE} calls replay a graph before it is captured "
    "anew: its shapes, or the memory of its parameters, keep changing; pad the inputs"
)

# A process has one capture at a time.
_one_capture = threading.RLock()
# Graphs that take turns on a stream share their memory; by device and stream.
_pools: dict[tuple[int, int], PoolHandle] = {}


def _pool(device: int, stream: int) -> PoolHandle:
    key = (device, stream)
    if key not in _pools:
        _pools[key] = graph_pool_handle()
    return _pools[key]


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
        self._varies: int | None = None  # the first input that is not fixed
        # By that input's shape, as most calls differ there; what was used last comes
        # last here, and first among its own.
        self._graphs: OrderedDict[Any, list[tuple[Any, _C.Replayed]]] = OrderedDict()
        # Held by whoever changes these: to give up a graph may run finalizers.
        self._changes = threading.RLock()
        self._seen: OrderedDict[Any, None] = OrderedDict()
        self._replays = self._captures = self._failures = 0

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        shape = self._shape(inputs)
        for i, entry in enumerate(self._graphs.get(shape, ())):
            results = entry[1](inputs)
            if results is not None:
                self._replays += 1
                if i or len(self._graphs) > 1:
                    self._used(shape, entry, i)
                return results
        return self._without_a_replay(inputs, shape)

    def _used(self, shape: Any, entry: tuple[Any, _C.Replayed], place: int) -> None:
        with self._changes:
            graphs = self._graphs.get(shape)
            if graphs is None:  # another thread has given it up
                return
            self._graphs.move_to_end(shape)
            if place and entry in graphs:
                graphs.remove(entry)
                graphs.insert(0, entry)

    def _shape(self, inputs: list[Any]) -> Any:
        if self._varies is None:
            free = (i for i in range(len(inputs)) if i not in self._fixed)
            self._varies = next(free, -1)
        if self._varies < 0:
            return None
        varies = inputs[self._varies]
        return varies.shape if isinstance(varies, Tensor) else varies

    def _without_a_replay(self, inputs: list[Any], shape: Any) -> Sequence[Any]:
        if self._captures > _MOST + self._replays // _REPLAYS_PER_CAPTURE:
            self._say(_TOO_MANY)
            return self._function(inputs)
        stream = _C.current_stream(self._device)
        key = (
            stream,
            *(
                (x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else x
                for x in inputs
            ),
        )
        if is_current_stream_capturing():
            return self._function(inputs)
        with self._changes:
            captures = self._known(key) and self._make_room(key, shape, inputs)
        if not captures:
            return self._function(inputs)
        try:
            with _one_capture:
                made = self._capture(inputs, stream)
        except RuntimeError as error:
            self._failed(error)
            return self._function(inputs)
        self._failures = 0
        with self._changes:
            # Other threads may have captured meanwhile, for the same room.
            if self._make_room(key, shape, inputs):
                self._graphs.setdefault(shape, []).insert(0, (key, made))
                self._graphs.move_to_end(shape)
        results = made(inputs)
        # None: another thread has replayed it, and holds what this overwrites.
        return self._function(inputs) if results is None else results

    def _known(self, key: Any) -> bool:
        """Return whether there was such a call before, and note that there was."""
        known = key in self._seen
        self._seen[key] = None
        self._seen.move_to_end(key)
        if len(self._seen) > _MOST_SEEN:
            self._seen.popitem(last=False)
        return known

    def _make_room(self, key: Any, shape: Any, inputs: list[Any]) -> bool:
        """Return whether to capture; give up the graph that is needed least."""
        if self._failures >= _MOST_FAILURES:
            return False
        graphs = self._graphs.get(shape, [])
        alike = [entry for entry in graphs if entry[0] == key]
        while len(alike) >= _MOST_ALIKE:
            moved = [entry for entry in alike if not entry[1].reads(inputs)]
            if not moved:
                self._say(
                    f"results of {_MOST_ALIKE} earlier calls are still in use: keep "
                    "clones, or detached ones of training"
                )
                return False
            graphs.remove(moved[-1])
            alike.remove(moved[-1])
        while sum(map(len, self._graphs.values())) >= _MOST:
            oldest, others = next(iter(self._graphs.items()))
            others.pop()
            if not others:
                del self._graphs[oldest]
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
        captured = NPUGraph()
        with graph(
            captured,
            pool=_pool(self._device, stream),
            stream=graph.capture_stream_of(self._device),
            # Other threads may wait for their own work meanwhile.
            capture_error_mode="thread_local",
            check_input_liveness=False,  # it looks where its inputs are at each call
        ):
            results = list(self._function(list(own)))
        return _C.Replayed(captured, stream, own, copied, results)

    def _failed(self, error: RuntimeError) -> None:
        self._failures += 1
        if isinstance(error, torch.OutOfMemoryError):
            with self._changes:
                self._graphs.clear()  # a later call may have the memory
        self._say(f"it cannot be captured: {error}")

    def _say(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            self._tell(why)
