"""What starts the runtime, and what must not."""

from __future__ import annotations

# Contracted as L0 and Lq: none of these starts anything.
STARTS_NOTHING = """
npu.is_available()
npu.device_count()
npu.is_initialized()
npu.get_device_capability()
npu.get_device_name(0)
npu.current_blas_handle()
npu.set_sync_debug_mode(0)
npu.get_sync_debug_mode()
npu.is_current_stream_capturing()
npu.Event()
npu.Event(enable_timing=True, blocking=True)
npu.Event().query()
npu.Event().synchronize()
npu.empty_cache()
npu.memory_allocated()
npu.max_memory_allocated()
npu.memory_reserved()
npu.max_memory_reserved()
npu.memory_stats()
npu.memory_stats_as_nested_dict()
npu.memory_snapshot()
npu.memory_summary()
npu.get_allocator_backend()
npu.manual_seed(1)
npu.manual_seed_all(1)
npu.seed()
npu.seed_all()
npu.set_rng_state(torch.zeros(16, dtype=torch.uint8))
torch.manual_seed(1)
npu.nvtx.mark("m")
npu.nvtx.range_push("r")
npu.nvtx.range_pop()
npu.nvtx.range_end(npu.nvtx.range_start("s"))
npu.mstx.mark("m")
npu.mstx.range_end(npu.mstx.range_start("s"))
npu.set_mm_bmm_format_nd(True)
npu.get_mm_bmm_format_nd()
npu.set_compile_mode()
npu.set_option({"ACL_OP_DEBUG_LEVEL": 1})
npu.is_bf16_supported()
npu.get_arch_list()
npu.get_gencode_flags()
npu.is_autocast_enabled()
npu.get_autocast_dtype()
npu.matmul.allow_hf32
npu.conv.allow_hf32
npu.aclnn.allow_hf32
npu.aclnn.version()
npu.config.allow_internal_format
npu._is_in_bad_fork()
npu._lazy_call(lambda: None)
npu.default_generators
torch.accelerator.is_available()
torch.accelerator.current_accelerator()
torch.accelerator.device_count()
torch.get_device_module("npu")
"""

STARTS = """
npu.init()
npu.current_device()
npu.set_device(0)
npu.get_device_properties()
npu.can_device_access_peer(0, 0)
npu.mem_get_info()
npu.Stream()
npu.current_stream()
npu.default_stream()
npu.stream(None)
npu.SyncLaunchStream()
npu.Event().record()
npu.ExternalEvent()
npu.get_rng_state()
npu.initial_seed()
npu.caching_allocator_alloc(1)
npu.set_per_process_memory_fraction(0.5)
npu.utils.is_support_inf_nan()
npu.is_jit_compile_false()
npu.FloatTensor([1.0])
npu.FloatStorage(1)
npu.synchronize()
npu.device(0).__enter__()
npu.get_device_properties(0)
npu.ipc_collect()
npu.utilization()
npu.memory_usage()
npu.list_gpu_processes()
npu.get_rng_state_all()
npu.reset_peak_memory_stats()
npu.reset_accumulated_memory_stats()
npu.reset_max_memory_allocated()
npu.memory._record_memory_history()
npu.utils.npu_check_overflow(1.0)
npu.clear_npu_overflow_flag()
npu.check_uce_in_memory(0)
npu.stop_device(0)
npu.restart_device(0)
npu.stress_detect()
npu.get_device_limit(0)
npu.npurt()
npu._sleep(1)
npu._lazy_init()
npu.comm.gather([torch.ones(1, device="npu")])
torch.ones(1, device="npu")
"""

PROGRAM = """
import sys, warnings
import torch
warnings.simplefilter("ignore")
npu = torch.npu
for call in {calls!r}.split("\\n"):
    exec(call)
    if npu.is_initialized():
        print(call)
        break
"""


def test_what_is_contracted_to_start_nothing_starts_nothing(python):
    result = python(PROGRAM.format(calls=STARTS_NOTHING))

    assert result.stdout == ""


FORKS = """
import os, sys, warnings
import torch
warnings.simplefilter("ignore")
npu = torch.npu
for call in {calls!r}.strip().split("\\n"):
    sys.stdout.flush()
    if os.fork() == 0:
        exec(call)
        print(npu.is_initialized(), call, flush=True)
        os._exit(0)
    os.wait()
"""


def test_what_is_contracted_to_start_the_runtime_does(python):
    # Each in a process of its own, forked from one that has started nothing.
    result = python(FORKS.format(calls=STARTS))

    expected = [f"True {call}" for call in STARTS.strip().splitlines()]
    assert result.stdout.splitlines() == expected
