"""This user's processes on a device, and the memory that each of them holds."""

from __future__ import annotations

import os

from npu_dispatch.npu.runtime.devices import Device, checked_index
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.folders import SEGMENTS, own_folders
from npu_dispatch.observe.segment.system import is_here
from npu_dispatch.observe.segment.values import DeviceStats


def _processes(index: int) -> dict[int, DeviceStats]:
    """Return the bytes that each process of this user has on a device, by pid."""
    found = {}
    folders = [folder for folder in own_folders(SEGMENTS) if folder.is_dir()]
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        try:
            with StatsReader(path) as reader:
                info = reader.info
                if not is_here(info.pid_namespace) or not reader.lives():
                    continue
                for stats in reader.devices():
                    if stats.device == index:
                        found[info.pid] = stats
        except (OSError, StatsError, ValueError):
            continue
    return found


def reserved_elsewhere(index: int) -> int:
    """Return the bytes that this user's other processes hold of a device."""
    others = _processes(index)
    others.pop(os.getpid(), None)
    return sum(stats.reserved for stats in others.values())


def list_gpu_processes(device: Device = None) -> str:
    """Return a text of this user's processes on a device, with the MB that they hold.

    The text has the form of torch.cuda.list_gpu_processes: a line `NPU:<index>`, then
    a line per process, or one which says that there is none.
    """
    index = checked_index(device)
    lines = [f"NPU:{index}"]
    for pid, stats in _processes(index).items():
        megabytes = stats.reserved / (1024 * 1024)
        lines.append(f"process {pid:>10d} uses {megabytes:>12.3f} MB NPU memory")
    if len(lines) == 1:
        lines.append("no processes are running")
    return "\n".join(lines)
