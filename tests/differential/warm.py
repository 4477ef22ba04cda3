"""What a fuzzing process imports before it forks, so that no child need do so."""

from __future__ import annotations

import gc

import torch
import torch._dynamo
import torch._refs
import torch.fx.experimental.symbolic_shapes

import npu_dispatch  # noqa: F401 - registers the device


def warm() -> None:
    """Import what first calls import, and spare children the search for garbage."""
    torch.nn.functional.layer_norm(torch.ones(2, 2, device="meta"), (2,))
    torch.ops.aten.native_layer_norm.default
    gc.collect()
    gc.freeze()
