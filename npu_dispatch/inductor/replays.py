"""mode="reduce-overhead": Inductor asks a policy to wrap what it compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._inductor import config
from torch._inductor.cudagraph_utils import (
    CUDAGraphPolicy,
    log_cudagraph_skip_and_bump_counter,
)

from npu_dispatch.inductor import report
from npu_dispatch.npu.graphs.replays import Replays
from npu_dispatch.npu.patches.changes import replace


def _say(why: str) -> None:
    report.note_without_graph(why)
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
        **how: Any,
    ) -> Callable[..., Any]:
        tensors = [x for x in example_inputs if isinstance(x, Tensor)]
        if not any(t.device.type == "npu" for t in tensors):
            if not torch.cuda.is_available():
                return model  # it makes all it returns, or reads constants only
            how["device_index"] = device_index
            return super().cudagraphify(model, example_inputs, static_input_idxs, **how)
        # A function must make changes in place where the caller has the tensor.
        fixed = {*static_input_idxs, *how.get("mutated_input_idxs", ())}
        return Replays(model, fixed, device_index, _say)


def _check(asked: Any, mapping: dict[torch.device, torch.fx.Node]) -> str | None:
    types = [device.type for device in mapping if device.type != "meta"]
    return None if types == ["npu"] else asked(mapping)


def register() -> None:
    """Wrap graphs that compute on one npu; those with cpu nodes stay as they are."""
    replace(_check, "torch._inductor.cudagraph_utils:check_lowering_disable_cudagraph")
    if config.cudagraph_policy is None:
        config.cudagraph_policy = NpuGraphPolicy()
