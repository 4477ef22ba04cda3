"""torch_npu.profiler: torch.profiler under the vendor's names.

A trace is what torch.profiler writes, for the same viewers. The vendor's settings of
its chips' counters are taken, and are of no effect.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerAction as ProfilerAction, schedule as schedule

from npu_dispatch.import_alias import refused_names


class ProfilerActivity:
    """What is recorded: what the host does, and what the device does."""

    CPU = torch.profiler.ProfilerActivity.CPU
    NPU = torch.profiler.ProfilerActivity.PrivateUse1


def _names(name: str, values: str) -> Any:
    return enum.StrEnum(name, [(value, value) for value in values.split()])


ProfilerLevel = _names("ProfilerLevel", "Level0 Level1 Level2 Level_none")
AiCMetrics = _names(
    "AiCMetrics",
    "PipeUtilization ArithmeticUtilization Memory MemoryL0 MemoryUB "
    "ResourceConflictRatio L2Cache MemoryAccess AiCoreNone",
)
ExportType = _names("ExportType", "Text Db")
HostSystem = _names("HostSystem", "CPU MEM DISK NETWORK OSRT NUMA")


@dataclasses.dataclass
class _ExperimentalConfig:
    """Settings of counters that this device does not have: kept, and unused."""

    profiler_level: str = ProfilerLevel.Level0
    aic_metrics: str = AiCMetrics.PipeUtilization
    l2_cache: bool = False
    msprof_tx: bool = False
    mstx: bool = False
    data_simplification: bool = True
    record_op_args: bool = False
    op_attr: bool = False
    gc_detect_threshold: float | None = None
    export_type: str | list[str] = ExportType.Text
    host_sys: list[str] | None = None
    mstx_domain_include: list[str] | None = None
    mstx_domain_exclude: list[str] | None = None
    sys_io: bool = False
    sys_interconnection: bool = False


class profile(torch.profiler.profile):
    """torch.profiler.profile of host and device; experimental_config has no effect."""

    def __init__(
        self,
        *,
        activities: Iterable[Any] | None = None,
        experimental_config: _ExperimentalConfig | None = None,
        use_cuda: bool | None = None,
        **options: Any,
    ) -> None:
        chosen = supported_activities() if activities is None else activities
        super().__init__(activities=chosen, **options)


def supported_activities() -> set[Any]:
    """Return the activities that can be recorded."""
    return {ProfilerActivity.CPU, ProfilerActivity.NPU}


def tensorboard_trace_handler(
    dir_name: str | None = None,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
) -> Any:
    """Return torch's handler, which writes a trace file into the folder.

    dir_name: by default the current folder. The trace is complete when it is
    written, so that nothing remains to be analysed.
    """
    of_torch: Any = torch.profiler
    return of_torch.tensorboard_trace_handler(dir_name or ".", worker_name)


__getattr__ = refused_names("torch_npu.profiler")
