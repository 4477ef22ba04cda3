"""What torch.npu exports, and from where.

Type checkers read this file; so does __init__.py, which imports a module when
one of its names is first used.
"""

import collections.abc
import typing

import torch

import npu_dispatch.errors

from . import (
    _sanitizer as _sanitizer,
    amp as amp,
    comm as comm,
    graphs as graphs,
    jiterator as jiterator,
    legacy as legacy,
    memory as memory,
    nvtx as nvtx,
    profiler as profiler,
    random as random,
    streams as streams,
    utils as utils,
)
from .amp import (
    get_amp_supported_dtype as get_amp_supported_dtype,
    get_autocast_dtype as get_autocast_dtype,
    is_autocast_enabled as is_autocast_enabled,
    set_autocast_dtype as set_autocast_dtype,
    set_autocast_enabled as set_autocast_enabled,
)
from .debugging.host_waits import (
    SyncSite as SyncSite,
    allow_sync as allow_sync,
    get_sync_debug_mode as get_sync_debug_mode,
    reset_sync_report as reset_sync_report,
    set_sync_debug_mode as set_sync_debug_mode,
    sync_guard as sync_guard,
    sync_report as sync_report,
)
from .debugging.ranges import (
    mstx as mstx,
)
from .graphs import (
    NPUGraph as NPUGraph,
    graph as graph,
    graph_pool_handle as graph_pool_handle,
    graph_task_group_begin as graph_task_group_begin,
    graph_task_group_end as graph_task_group_end,
    graph_task_update_begin as graph_task_update_begin,
    graph_task_update_end as graph_task_update_end,
    is_current_stream_capturing as is_current_stream_capturing,
)
from .graphs.callables import (
    make_graphed_callables as make_graphed_callables,
)
from .legacy import (
    BFloat16Storage as BFloat16Storage,
    BFloat16Tensor as BFloat16Tensor,
    BoolStorage as BoolStorage,
    BoolTensor as BoolTensor,
    ByteStorage as ByteStorage,
    ByteTensor as ByteTensor,
    CharStorage as CharStorage,
    CharTensor as CharTensor,
    ComplexDoubleStorage as ComplexDoubleStorage,
    ComplexFloatStorage as ComplexFloatStorage,
    DoubleStorage as DoubleStorage,
    DoubleTensor as DoubleTensor,
    FloatStorage as FloatStorage,
    FloatTensor as FloatTensor,
    HalfStorage as HalfStorage,
    HalfTensor as HalfTensor,
    IntStorage as IntStorage,
    IntTensor as IntTensor,
    LongStorage as LongStorage,
    LongTensor as LongTensor,
    ShortStorage as ShortStorage,
    ShortTensor as ShortTensor,
)
from .memory import (
    caching_allocator_alloc as caching_allocator_alloc,
    caching_allocator_delete as caching_allocator_delete,
    empty_cache as empty_cache,
    empty_virt_addr_cache as empty_virt_addr_cache,
    erase_stream as erase_stream,
    get_allocator_backend as get_allocator_backend,
    get_per_process_memory_fraction as get_per_process_memory_fraction,
    guard_allocator_enabled as guard_allocator_enabled,
    host_empty_cache as host_empty_cache,
    host_memory_stats as host_memory_stats,
    host_memory_stats_as_nested_dict as host_memory_stats_as_nested_dict,
    max_memory_allocated as max_memory_allocated,
    max_memory_cached as max_memory_cached,
    max_memory_reserved as max_memory_reserved,
    mem_get_info as mem_get_info,
    memory_allocated as memory_allocated,
    memory_cached as memory_cached,
    memory_reserved as memory_reserved,
    memory_snapshot as memory_snapshot,
    memory_stats as memory_stats,
    memory_stats_as_nested_dict as memory_stats_as_nested_dict,
    memory_summary as memory_summary,
    reset_accumulated_host_memory_stats as reset_accumulated_host_memory_stats,
    reset_accumulated_memory_stats as reset_accumulated_memory_stats,
    reset_max_memory_allocated as reset_max_memory_allocated,
    reset_max_memory_cached as reset_max_memory_cached,
    reset_peak_host_memory_stats as reset_peak_host_memory_stats,
    reset_peak_memory_stats as reset_peak_memory_stats,
    set_per_process_memory_fraction as set_per_process_memory_fraction,
)
from .memory.pool import (
    MemPool as MemPool,
    NPUPluggableAllocator as NPUPluggableAllocator,
    change_current_allocator as change_current_allocator,
    use_mem_pool as use_mem_pool,
)
from .memory.shared import ipc_collect as ipc_collect
from .random import (
    get_rng_state as get_rng_state,
    get_rng_state_all as get_rng_state_all,
    initial_seed as initial_seed,
    manual_seed as manual_seed,
    manual_seed_all as manual_seed_all,
    seed as seed,
    seed_all as seed_all,
    set_rng_state as set_rng_state,
    set_rng_state_all as set_rng_state_all,
)
from .runtime.device_error import (
    DeviceError as DeviceError,
    frame_origins as frame_origins,
)
from .runtime.devices import (
    DeviceProperties as DeviceProperties,
    _exchange_device as _exchange_device,
    _get_device_index as _get_device_index,
    _maybe_exchange_device as _maybe_exchange_device,
    can_device_access_peer as can_device_access_peer,
    current_blas_handle as current_blas_handle,
    current_device as current_device,
    device as device,
    device_count as device_count,
    device_ctx_manager as device_ctx_manager,
    device_of as device_of,
    get_arch_list as get_arch_list,
    get_device_capability as get_device_capability,
    get_device_name as get_device_name,
    get_device_properties as get_device_properties,
    get_gencode_flags as get_gencode_flags,
    is_available as is_available,
    is_bf16_supported as is_bf16_supported,
    launch_blocking as launch_blocking,
    set_device as set_device,
    set_launch_blocking as set_launch_blocking,
    set_thread_launch_blocking as set_thread_launch_blocking,
    synchronize as synchronize,
)
from .runtime.load import (
    clock_rate as clock_rate,
    memory_usage as memory_usage,
    power_draw as power_draw,
    temperature as temperature,
    utilization as utilization,
)
from .runtime.processes import list_gpu_processes as list_gpu_processes
from .runtime.start import (
    _is_in_bad_fork as _is_in_bad_fork,
    _lazy_call as _lazy_call,
    _lazy_init as _lazy_init,
    init as init,
    is_initialized as is_initialized,
)
from .streams import (
    Event as Event,
    Stream as Stream,
    StreamContext as StreamContext,
    SyncLaunchStream as SyncLaunchStream,
    clear_error as clear_error,
    current_stream as current_stream,
    default_stream as default_stream,
    reset_device as reset_device,
    set_stream as set_stream,
    stream as stream,
    stream_error as stream_error,
)
from .streams.current import (
    _sleep as _sleep,
)
from .streams.external import (
    ExternalEvent as ExternalEvent,
    ExternalStream as ExternalStream,
)
from .streams.stream import set_strict_stream_pools as set_strict_stream_pools
from .utils import (
    clear_npu_overflow_flag as clear_npu_overflow_flag,
    get_npu_overflow_flag as get_npu_overflow_flag,
)
from .vendor.faults import (
    check_uce_in_memory as check_uce_in_memory,
    restart_device as restart_device,
    stop_device as stop_device,
    stress_detect as stress_detect,
)
from .vendor.npu_runtime import npurt as npurt
from .vendor.settings import (
    aclnn as aclnn,
    config as config,
    conv as conv,
    get_cann_version as get_cann_version,
    get_device_limit as get_device_limit,
    get_mm_bmm_format_nd as get_mm_bmm_format_nd,
    get_stream_limit as get_stream_limit,
    get_task_queue_enable as get_task_queue_enable,
    is_jit_compile_false as is_jit_compile_false,
    matmul as matmul,
    reset_stream_limit as reset_stream_limit,
    set_aoe as set_aoe,
    set_compile_mode as set_compile_mode,
    set_deterministic_level as set_deterministic_level,
    set_device_limit as set_device_limit,
    set_mm_bmm_format_nd as set_mm_bmm_format_nd,
    set_op_timeout_ms as set_op_timeout_ms,
    set_option as set_option,
    set_stream_limit as set_stream_limit,
    set_task_queue_enable as set_task_queue_enable,
    use_compatible_impl as use_compatible_impl,
)
from .vendor.tensor_dump import (
    finalize_dump as finalize_dump,
    init_dump as init_dump,
    set_dump as set_dump,
)

OutOfMemoryError = torch.OutOfMemoryError
DeferredNpuCallError = npu_dispatch.errors.DeferredNpuCallError
HostSyncError = npu_dispatch.errors.HostSyncError
HostSyncWarning = npu_dispatch.errors.HostSyncWarning
default_generators: tuple[torch.Generator, ...]
_initialized: bool
__all__: list[str]

def _compile_with(register: collections.abc.Callable[[], typing.Any]) -> None: ...
