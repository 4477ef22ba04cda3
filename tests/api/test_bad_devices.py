"""What an ill-formed device gives, in every function that takes one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

npu = torch.npu

# By the class of the error for an index that does not exist.
TAKES_A_DEVICE = {
    RuntimeError: "set_device synchronize Stream SyncLaunchStream current_stream "
    "default_stream memory_stats memory_stats_as_nested_dict memory_allocated "
    "max_memory_allocated memory_reserved max_memory_reserved memory_summary "
    "memory_cached max_memory_cached reset_peak_memory_stats "
    "reset_accumulated_memory_stats reset_max_memory_allocated "
    "reset_max_memory_cached get_per_process_memory_fraction",
    AssertionError: "get_device_name get_device_properties utilization memory_usage "
    "temperature power_draw clock_rate list_gpu_processes mem_get_info "
    "get_device_limit",
    IndexError: "get_rng_state",
}
NAMES = [(n, error) for error, names in TAKES_A_DEVICE.items() for n in names.split()]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "error"), NAMES, ids=[name for name, _ in NAMES])
def test_a_device_that_is_none(name, error, sensors):
    function, state = getattr(npu, name), npu.current_device()

    for other in ("cpu", "cuda:0", torch.device("cpu")):
        with pytest.raises(ValueError, match="npu device"):
            function(other)
    for unreadable in ("no:such", "npu:x"):
        with pytest.raises(RuntimeError, match=r"(?i)device"):
            function(unreadable)
    with pytest.raises(ValueError, match=r"a torch\.device or an index"):
        function(1.5)
    for missing in (99, "npu:99", torch.device("npu", 99)):
        with pytest.raises(error, match="99"):
            function(missing)
    assert npu.current_device() == state


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name, _ in NAMES])
def test_all_ways_to_name_a_device(name, sensors):
    function = getattr(npu, name)

    for way in (0, "npu", "npu:0", torch.device("npu"), npu.device(0)):
        function(way)
    if name not in ("get_device_limit", "set_device"):
        function(None)


def test_peers_name_the_one_that_is_wrong():
    with pytest.raises(AssertionError, match=r"Invalid device id 99"):
        npu.can_device_access_peer(99, 0)
    with pytest.raises(AssertionError, match=r"Invalid peer device id 99"):
        npu.can_device_access_peer(0, 99)


def test_ipc_collect_removes_what_a_killed_process_left(child_environment):
    code = """
import os, signal
import npu_dispatch, torch
event = torch.npu.Event(interprocess=True)
name = event.ipc_handle().decode()
print(name, os.path.exists(f"/dev/shm/{name}"), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    mine = npu.Event(interprocess=True)
    died = subprocess.run(
        [sys.executable, "-c", code],
        env=child_environment(),
        capture_output=True,
        text=True,
    )
    name, was_there = died.stdout.split()

    npu.ipc_collect()

    assert was_there == "True"
    assert not (Path("/dev/shm") / name).exists()
    assert (Path("/dev/shm") / os.fsdecode(mine.ipc_handle())).is_file()


def test_ipc_collect_leaves_the_events_of_other_containers():
    """Which may share /dev/shm, and whose process numbers mean nothing here."""
    theirs = Path(f"/dev/shm/npu_event-999999999-1-{os.getpid()}")
    theirs.touch(0o600)
    try:
        npu.ipc_collect()

        assert theirs.is_file()
    finally:
        theirs.unlink()
