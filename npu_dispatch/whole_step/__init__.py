"""Whole training steps: compiled by Inductor, captured in a graph, replayed.

Users call `npu_dispatch.compile_step`. training.py is the loop that it stands for,
and step.py decides what runs: that loop, its compiled form, or a replay.
"""

from __future__ import annotations

from npu_dispatch.whole_step.step import CompiledStep
from npu_dispatch.whole_step.training import Training

__all__ = ["CompiledStep", "Training"]
