"""What starts the runtime, and what must not."""

# Contracted as L0 and Lq: none of these starts anything.
STARTS_NOTHING = """
is_available() device_count() is_initialized() get_device_capability()
get_device_name(0) current_blas_handle() set_sync_debug_mode(0) get_sync_debug_mode()
is_current_stream_capturing() Event() Event(enable_timing=True,blocking=True)
Event().query() Event().synchronize() empty_cache() memory_allocated()
max_memory_allocated() memory_reserved() max_memory_reserved() memory_stats()
memory_stats_as_nested_dict() memory_snapshot() memory_summary()
get_allocator_backend() manual_seed(1) manual_seed_all(1) seed() seed_all()
set_rng_state(torch.zeros(16,dtype=torch.uint8)) nvtx.mark("m") nvtx.range_push("r")
nvtx.range_pop() nvtx.range_end(npu.nvtx.range_start("s")) mstx.mark("m")
mstx.range_end(npu.mstx.range_start("s")) set_mm_bmm_format_nd(True)
get_mm_bmm_format_nd() set_compile_mode() set_option({"ACL_OP_DEBUG_LEVEL":1})
is_bf16_supported() get_arch_list() get_gencode_flags() is_autocast_enabled()
get_autocast_dtype() matmul.allow_hf32 conv.allow_hf32 aclnn.allow_hf32 aclnn.version()
config.allow_internal_format _is_in_bad_fork() _lazy_call(lambda:None)
default_generators
"""
OF_TORCH = """
torch.manual_seed(1) torch.accelerator.is_available()
torch.accelerator.current_accelerator() torch.accelerator.device_count()
torch.get_device_module("npu")
"""
STARTS = """
init() current_device() set_device(0) get_device_properties()
can_device_access_peer(0,0) mem_get_info() Stream() current_stream() default_stream()
stream(None) SyncLaunchStream() Event().record() ExternalEvent() get_rng_state()
initial_seed() caching_allocator_alloc(1) set_per_process_memory_fraction(0.5)
utils.is_support_inf_nan() is_jit_compile_false() FloatTensor([1.0]) FloatStorage(1)
synchronize() device(0).__enter__() get_device_properties(0) ipc_collect()
utilization() memory_usage() list_gpu_processes() get_rng_state_all()
reset_peak_memory_stats() reset_accumulated_memory_stats() reset_max_memory_allocated()
memory._record_memory_history()
utils.npu_check_overflow(1.0) clear_npu_overflow_flag() check_uce_in_memory(0)
stop_device(0) restart_device(0) stress_detect() get_device_limit(0) npurt() _sleep(1)
_lazy_init() comm.gather([torch.ones(1,device="npu")])
"""
HEAD = """
import os, sys, warnings
import torch
warnings.simplefilter("ignore")
npu = torch.npu
for call in {calls!r}:
"""
# What has started the runtime, if anything has.
ALL = """
    exec(call)
    if npu.is_initialized():
        print(call)
        break
"""
# Each in a process of its own, forked from one that has started nothing.
EACH = """
    sys.stdout.flush()
    if os.fork() == 0:
        exec(call)
        print(npu.is_initialized(), call, flush=True)
        os._exit(0)
    os.wait()
"""


def of_npu(words: str) -> list[str]:
    return [f"npu.{call}" for call in words.split()]


def test_what_is_contracted_to_start_nothing_starts_nothing(python):
    calls = of_npu(STARTS_NOTHING) + OF_TORCH.split()

    assert python(HEAD.format(calls=calls) + ALL).stdout == ""


def test_what_is_contracted_to_start_the_runtime_does(python):
    calls = [*of_npu(STARTS), "torch.ones(1,device='npu')"]

    result = python(HEAD.format(calls=calls) + EACH)

    assert result.stdout.splitlines() == [f"True {call}" for call in calls]
