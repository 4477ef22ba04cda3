"""What an ill-formed device gives, in every function that takes one."""

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
