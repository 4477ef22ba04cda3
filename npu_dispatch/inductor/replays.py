"""mode="reduce-overhead": compiled functions captured at their second call.

Inductor asks a policy to wrap what it compiled. CUDA's wrapper saves and restores
states of CUDA's allocator. Here results stay where the capture put them, and another
graph is captured if those are still in use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config, cudagraph_utils
from torch._inductor.cudagraph_utils import (
    CUDAGraphPolicy,
    log_cudagraph_skip_and_bump_counter,
)

from npu_dispatch import _C, npu

__all__ = ["register"]

Boxed = Callable[[list[Any]], Sequence[Any]]

# The most graphs of one function, and the most of them for the same shapes; several
# are needed where results of earlier calls are still in use.
_MOST, _MOST_ALIKE = 32, 4
# The most captures of one function, so that they end if its parameters keep moving.
_MOST_CAPTURES = 128

# Graphs of a stream run one after the other, so they share what they free.
_pools: dict[tuple[int, int], npu.graphs.PoolHandle] = {}


def _pool(device: int, stream: int) -> npu.graphs.PoolHandle:
    key = (device, stream)
    if key not in _pools:
        _pools[key] = npu.graph_pool_handle()
    return _pools[key]


def _like(tensor: Tensor) -> Tensor:
    return torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )


class Replays:
    """A compiled function, called at first and then replayed, for each set of shapes.

    `fixed`: the inputs that are read where they are, such as parameters. Others are
    copied into the graph's own.
    """

    _boxed_call = True  # it takes a list, and clears it

    def __init__(self, function: Boxed, fixed: set[int], device: int) -> None:
        self._function = function
        self._fixed = fixed
        self._device = device
        self._seen: set[Any] = set()
        # The graph that was used last comes first.
        self._graphs: list[tuple[Any, _C.Replayed]] = []
        self._captures = 0
        self._said: set[str] = set()

    def __call__(self, inputs: list[Any]) -> Sequence[Any]:
        for i, entry in enumerate(self._graphs):
            results = entry[1](inputs)
            if results is not None:
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
        if key not in self._seen or npu.is_current_stream_capturing():
            self._seen.add(key)
            return self._function(inputs)
        if self._captures == _MOST_CAPTURES:
            self._say(
                f"captured {_MOST_CAPTURES} times: its shapes or the memory of its "
                "parameters keep changing"
            )
            return self._function(inputs)
        alike = [entry for entry in self._graphs if entry[0] == key]
        if len(alike) == _MOST_ALIKE:
            moved = [entry for entry in alike if not entry[1].reads(inputs)]
            if not moved:
                self._say(
                    f"results of {_MOST_ALIKE} earlier calls are still in use: keep "
                    "clones, or detached ones of training"
                )
                return self._function(inputs)
            self._graphs.remove(moved[-1])
        elif len(self._graphs) >= _MOST:
            self._say(f"{_MOST} graphs for other shapes are kept: pad the inputs")
            return self._function(inputs)
        try:
            made = self._capture(inputs, stream)
        except RuntimeError as error:
            self._say(f"it cannot be captured: {error}")
            self._captures = _MOST_CAPTURES
            return self._function(inputs)
        self._captures += 1
        self._graphs.insert(0, (key, made))
        results = made(inputs)
        assert results is not None
        return results

    def _capture(self, inputs: list[Any], stream: int) -> _C.Replayed:
        copied = [
            i
            for i, x in enumerate(inputs)
            if isinstance(x, Tensor) and i not in self._fixed
        ]
        own = list(inputs)
        for i in copied:
            own[i] = _like(inputs[i])
        graph = npu.NPUGraph()
        with npu.graph(graph, pool=_pool(self._device, stream)):
            results = list(self._function(list(own)))
        return _C.Replayed(graph, self._device, stream, own, copied, results)

    def _say(self, why: str) -> None:
        if why not in self._said:
            self._said.add(why)
            log_cudagraph_skip_and_bump_counter(
                f"reduce-overhead runs without a graph where {why}"
            )


class NpuGraphPolicy(CUDAGraphPolicy):
    """Wraps what was compiled for npu; leaves other devices to torch."""

    def cudagraphify(
        self,
        model: Callable[..., Any],
        example_inputs: Sequence[Any],
        static_input_idxs: Sequence[int],
        *,
        device_index: int,
        is_backward: bool,
        is_inference: bool,
        **kwargs: Any,
    ) -> Callable[..., Any]:
        tensors = [x for x in example_inputs if isinstance(x, Tensor)]
        if not any(t.device.type == "npu" for t in tensors):
            if not torch.cuda.is_available():
                return model  # it makes all it returns, or reads constants only
            return super().cudagraphify(
                model,
                example_inputs,
                static_input_idxs,
                device_index=device_index,
                is_backward=is_backward,
                is_inference=is_inference,
                **kwargs,
            )
        # A function must make changes in place where the caller has the tensor.
        fixed = {*static_input_idxs, *kwargs.get("mutated_input_idxs", ())}
        return Replays(model, fixed, device_index)


def register() -> None:
    """Wrap graphs that compute on one npu; those with cpu nodes stay as they are."""
    asked = cudagraph_utils.check_multiple_devices_or_any_cpu_nodes

    def check(
        device_node_mapping: dict[torch.device, torch.fx.Node],
    ) -> str | None:
        types = [d.type for d in device_node_mapping if d.type != "meta"]
        if types == ["npu"]:
            return None
        return asked(device_node_mapping)

    cudagraph_utils.check_multiple_devices_or_any_cpu_nodes = check
    if config.cudagraph_policy is None:
        config.cudagraph_policy = NpuGraphPolicy()
