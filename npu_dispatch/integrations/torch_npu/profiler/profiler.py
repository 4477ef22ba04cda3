"""torch_npu.profiler.profiler: what analyses a folder of traces."""

from __future__ import annotations

from typing import Any

from npu_dispatch.import_alias import refused_names
from npu_dispatch.integrations.torch_npu.profiler import (
    profile as profile,
    tensorboard_trace_handler as tensorboard_trace_handler,
)


def analyse(
    profiler_path: str, max_process_number: int = 1, export_type: Any = None
) -> None:
    """Do nothing: a trace is complete when it is written."""


__getattr__ = refused_names("torch_npu.profiler.profiler")
