"""Snapshots of device memory and its recorded history, in the form of torch.cuda's."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch._utils import _augment_memory_snapshot_stack_traces

from npu_dispatch import _C
from npu_dispatch.npu.runtime.alloc_conf import allocator_settings
from npu_dispatch.npu.runtime.codes import expect_one_of
from npu_dispatch.npu.runtime.devices import Device, _get_device_index
from npu_dispatch.npu.runtime.start import _lazy_init, is_initialized

_ACTIONS = (
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "oom",
    "snapshot",
)
_STACKS = {None: 0, "state": 1, "alloc": 2, "all": 3}


def _record_memory_history(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    compile_context: bool = False,
    global_record_annotations: bool = False,
    skip_actions: Sequence[str] | None = None,
) -> None:
    """Record each step of the devices' memory with the Python stack that took it.

    enabled: None switches recording off, "state" records the stacks of memory in use
    only, and "all" also the history. context: the stacks to keep; None keeps none,
    "state" those of memory in use, "alloc" those of all allocations, and "all" also
    those of frees. stacks: "python" or "all"; frames are Python's in both cases.
    max_entries: how many of the latest steps the history keeps. skip_actions: names
    of steps that it leaves out. All devices are recorded, whatever `device` says.
    compile_context and global_record_annotations have no effect, because no compiler
    and no annotation takes device memory here.
    """
    expect_one_of(enabled, (None, "state", "all"), "enabled", RuntimeError)
    expect_one_of(context, tuple(_STACKS), "context", RuntimeError)
    expect_one_of(stacks, ("python", "all"), "stacks", RuntimeError)
    for action in skip_actions or ():
        expect_one_of(action, _ACTIONS, "each of skip_actions", RuntimeError)
    _lazy_init()
    chosen = _STACKS[context] if enabled else 0
    _C.switch_memory_history(
        chosen, enabled == "all", max_entries, clear_history, list(skip_actions or ())
    )


def memory_snapshot(
    mempool_id: tuple[int, int] | None = None,
    include_traces: bool = True,
) -> list[dict[str, Any]]:
    """Return every segment and its blocks; [] before initialisation.

    mempool_id: return the segments of that MemPool.id only; (0, 0) is the memory that
    is in no pool. include_traces changes nothing, as segments have no traces.
    """
    if not is_initialized():
        return []
    return [
        segment
        for index in range(_C.device_count())
        for segment in _C.memory_snapshot(index)
        if mempool_id in (None, segment["segment_pool_id"])
    ]


def _snapshot(
    device: Device = None, augment_with_fx_traces: bool = False
) -> dict[str, Any]:
    """Return segments, history and settings, as torch.cuda.memory._snapshot does.

    torch.cuda._memory_viz and pytorch.org/memory_viz read it. device: the one device
    to return, by default all of them. augment_with_fx_traces: frames of code that
    torch.fx generated in this process also name their node and the model's line.
    """
    _lazy_init()
    count = _C.device_count()
    only = None if device is None else _get_device_index(device, optional=True)
    frames = _C.live_frames()
    segments = []
    for index in range(count):
        if only in (None, index):
            segments += _C.memory_snapshot(index)
    for segment in segments:
        for block in segment["blocks"]:
            if block["state"] != "inactive":
                block["frames"] = frames.get(block["address"], [])
    traces = _C.memory_history(count)
    snapshot: Any = {
        "segments": segments,
        "device_traces": [t if only in (None, i) else [] for i, t in enumerate(traces)],
        "allocator_settings": allocator_settings()
        | {
            "pinned_num_register_threads": 1,
            "release_lock_on_malloc": True,
            "pinned_use_host_register": False,
        },
        "external_annotations": [],
    }
    if augment_with_fx_traces:
        snapshot = _augment_memory_snapshot_stack_traces(snapshot)
    return dict(snapshot)


def _dump_snapshot(
    filename: str | Path = "dump_snapshot.pickle", augment_with_fx_traces: bool = False
) -> None:
    """Write _snapshot() to a file that pytorch.org/memory_viz opens."""
    snapshot = _snapshot(augment_with_fx_traces=augment_with_fx_traces)
    Path(filename).write_bytes(pickle.dumps(snapshot))
