"""What each environment variable means: a page of the site is made of this table.

config.py and csrc/base/env.h read them. A test compares the table with what they read.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GROUPS", "NAMES", "Variable"]


@dataclass(frozen=True, slots=True)
class Variable:
    """`meaning` and `default` are Markdown; `name` may end in a placeholder, `_N`."""

    name: str
    meaning: str
    default: str


_DEVICES = (
    Variable(
        "NPU_DISPATCH_DEVICES",
        "The number of virtual devices, 0 to 64.",
        "torchrun's `LOCAL_WORLD_SIZE`, or 1",
    ),
    Variable(
        "ASCEND_RT_VISIBLE_DEVICES",
        "Which of them the process sees, in ascending order, e.g. `0,1`.",
        "all",
    ),
    Variable(
        "NPU_DISPATCH_MEMORY",
        "The memory of each device, e.g. `512M` or `8G`.",
        "all devices together get half of what the host or its control group has",
    ),
    Variable(
        "NPU_DISPATCH_MEMORY_N",
        "The memory of device N alone, e.g. `NPU_DISPATCH_MEMORY_1=2G`.",
        "`NPU_DISPATCH_MEMORY`",
    ),
    Variable(
        "PYTORCH_NPU_ALLOC_CONF",
        "Settings of the allocator: [Memory](memory.md).",
        "none",
    ),
    Variable(
        "NPU_DISPATCH_CORES",
        "How many cores a large kernel may use. `set_device_limit()` and "
        "`set_stream_limit()` limit a device or a stream while it runs. Load never "
        "changes the number, so that results repeat.",
        "as many as torch uses; of several ranks on this machine (`LOCAL_WORLD_SIZE`) "
        "each uses its part of the cores, at least one",
    ),
    Variable(
        "NPU_DISPATCH_PLACEMENT",
        "`off`: launchers choose no CPUs and leave OpenMP's teams alone. `auto` spins "
        "for at most an eighth of a container's CPU quota (`cpu.max`), which the ranks "
        "of a machine divide: [Reliability](reliability.md#cores).",
        "`auto`",
    ),
    Variable(
        "STREAMS_PER_DEVICE",
        "The number of streams in a pool, 1 to 32.",
        "32",
    ),
    Variable(
        "NPU_STRICT_STREAMS",
        "1: a pool refuses to hand out a stream twice.",
        "0",
    ),
    Variable(
        "NPU_DEVICE_NAME",
        "What `get_device_name()` returns.",
        "`Virtual NPU`",
    ),
    Variable(
        "TORCH_NPU_DEVICE_CAPABILITY",
        "What `get_device_capability()` returns, e.g. `8.0`.",
        "none; 8.0 where `torch.cuda` means the npu",
    ),
)
_LAUNCHING = (
    Variable(
        "NPU_AUTOLOAD",
        "0: neither `import torch` nor `import npu_dispatch` registers the device; "
        "`npu_dispatch.register()` does.",
        "1",
    ),
    Variable(
        "TORCH_DEVICE_BACKEND_AUTOLOAD",
        "torch's own: 0 lets `import torch` load no package's device.",
        "1",
    ),
    Variable(
        "NPU_LAUNCH_BLOCKING",
        "1: every launch waits until its task is done, and raises its error.",
        "0",
    ),
    Variable(
        "ASCEND_LAUNCH_BLOCKING",
        "The same under the vendor's name.",
        "0",
    ),
    Variable(
        "TASK_QUEUE_ENABLE",
        "0: every launch waits, too; 1 and 2 queue launches and mean the same.",
        "1",
    ),
    Variable(
        "NPU_AUTOGRAD_THREADS",
        "1: torch runs a backward pass in its thread for the device, as by default on "
        "other devices. Here the calling thread runs it, which saves two switches "
        "between threads.",
        "0",
    ),
    Variable(
        "NPU_DISPATCH_LINKS",
        "`off`: the ranks of one machine exchange data through sockets, as those of "
        "different ones do: [More than one process](distributed.md#ranks-of-one-host).",
        "`auto`",
    ),
    Variable(
        "ACL_DEVICE_SYNC_TIMEOUT",
        "The number of seconds after which `synchronize()` of a device is an error.",
        "none",
    ),
    Variable(
        "ACL_STREAM_TIMEOUT",
        "The number of milliseconds after which `synchronize()` of a stream is an "
        "error.",
        "none",
    ),
    Variable(
        "INF_NAN_MODE_ENABLE",
        "0: `torch.npu.utils.is_support_inf_nan()` is False, and what asks it takes "
        "infinities for overflows as on older hardware. Kernels compute infinities and "
        "NaN in either case.",
        "1",
    ),
    Variable(
        "INF_NAN_MODE_FORCE_DISABLE",
        "1: the same, whatever `INF_NAN_MODE_ENABLE` says.",
        "0",
    ),
    Variable(
        "OMP_NUM_THREADS",
        "torch's own number of threads, which kernels use. `npu-dispatch doctor` says "
        "when it exceeds the cores.",
        "torch's default",
    ),
)
_DRIVERS = (
    Variable(
        "NPU_DRIVER",
        "The driver that runs the tasks: `host`, `null`, `emulated`, or the path of a "
        "shared library: [Drivers](drivers.md).",
        "`host`",
    ),
    Variable(
        "NPU_EMULATED_SHEET",
        "The device that `emulated` stands for: the name or the file of a sheet: "
        "[Plan](plan.md).",
        "`a100-80gb-sxm`",
    ),
    Variable(
        "NPU_EMULATED",
        "The same device as `key=value;...`, which is what the driver reads.",
        "made of the sheet",
    ),
)
_NAMES_OF_OTHERS = (
    Variable(
        "NPU_DISPATCH_CUDA",
        '1: `torch.cuda` and the device "cuda" mean the npu: '
        "[torch.cuda programs](torch_npu.md#torchcuda-programs).",
        "0",
    ),
    Variable(
        "NPU_DISPATCH_TORCH_NPU_ALIAS",
        "1: `import torch_npu` gives this device: [torch_npu](torch_npu.md).",
        "0",
    ),
    Variable(
        "TORCH_NPU_COMPACT_ERROR_OUTPUT",
        "1: while `import torch_npu` gives this device, messages of errors lack the "
        "line with torch_npu's code.",
        "0",
    ),
)
_WATCHING = (
    Variable(
        "NPU_TRACE",
        "1: the process keeps trace records from the start: [Tracing](tracing.md).",
        "0",
    ),
    Variable(
        "NPU_TRACE_DIR",
        "The same, and the file is left in this folder.",
        "none",
    ),
    Variable(
        "NPU_DISPATCH_SEGMENT_GROUP",
        "A group, by name or number, whose members may read this process's statistics: "
        "[Observability](observability.md#all-users-of-a-machine).",
        "only this user may",
    ),
    Variable(
        "XDG_RUNTIME_DIR",
        "The session's own folder. Statistics and traces are in `npu_dispatch` and "
        "`npu_dispatch-trace` there where another user has made the folder in "
        "`/dev/shm` first: [Observability](observability.md#all-users-of-a-machine).",
        "there are then no statistics for others",
    ),
    Variable(
        "NPU_DISPATCH_WATCHDOG",
        "A time such as `30s`: when a stream stands still for as long, the watchdog "
        "writes to stderr what all streams and threads are doing.",
        "none",
    ),
    Variable(
        "TORCH_FR_DUMP_TEMP_FILE",
        "Where every rank saves its collectives when one of them fails, and the "
        "watchdog those of a rank without progress. The rank is appended to the name: "
        "[Distributed](distributed.md#when-ranks-wait-for-each-other).",
        "none",
    ),
    Variable(
        "TORCH_HCCL_DEBUG_INFO_TEMP_FILE",
        "The same under the vendor's name, and asked first.",
        "none",
    ),
    Variable(
        "TORCH_NPU_SANITIZER",
        "1: the program stops at the first access that nothing orders; `report`: all "
        "are listed at its end: [Sanitizer](sanitizer.md).",
        "0",
    ),
    Variable(
        "TORCH_NPU_SANITIZER_SUPPRESSIONS",
        "A file that lists findings which are not reported.",
        "none",
    ),
    Variable(
        "TORCH_NPU_SANITIZER_FINDINGS",
        "The folder where processes leave their findings for `npu-dispatch sanitize`, "
        "which sets it.",
        "none",
    ),
)
_COMPILING = (
    Variable(
        "CXX",
        "The C++ compiler of `torch.npu.jiterator`; torch.compile asks for it, too.",
        "the first of `c++`, `g++` and `clang++` that is there; torch.compile: `g++`",
    ),
    Variable(
        "XDG_CACHE_HOME",
        "The folder below which compiled kernels of `torch.npu.jiterator` are kept, in "
        "`npu_dispatch`. Nobody else may be able to change it.",
        "`~/.cache`",
    ),
)
_LAUNCHERS = (
    Variable("RANK", "The rank that metrics, dumps and errors name.", "none"),
    Variable(
        "LOCAL_RANK",
        "The rank on this machine, which is the label `local_rank` of metrics.",
        "none",
    ),
    Variable("WORLD_SIZE", "The number of ranks that metrics and dumps name.", "none"),
    Variable(
        "LOCAL_WORLD_SIZE",
        "The number of ranks on this machine: that many devices by default, and cores "
        "and a quota of CPU time are divided by it.",
        "1",
    ),
    Variable(
        "MASTER_ADDR",
        "Ranks are connected at the address from which they reach it.",
        "the machine's name",
    ),
    Variable(
        "GLOO_SOCKET_IFNAME",
        "The network interface that connects ranks instead: "
        "[Two hosts](distributed.md#two-hosts).",
        "none",
    ),
    Variable("SLURM_JOB_ID", "The job that metrics and dumps name.", "none"),
    Variable(
        "TORCHELASTIC_RUN_ID",
        "The same where torchrun starts the ranks and `SLURM_JOB_ID` is not set.",
        "none",
    ),
    Variable(
        "MASTER_PORT",
        "With `MASTER_ADDR`, what metrics and dumps call a job that torchrun gave no "
        "id.",
        "none",
    ),
    Variable("POD_NAME", "The pod that metrics name.", "none"),
    Variable("NODE_NAME", "The host that metrics name.", "the machine's name"),
)
# In the order of the page: a heading, and its variables.
GROUPS: dict[str, tuple[Variable, ...]] = {
    "Devices, memory, cores": _DEVICES,
    "Launching": _LAUNCHING,
    "Drivers": _DRIVERS,
    "Programs for other devices": _NAMES_OF_OTHERS,
    "Watching and finding faults": _WATCHING,
    "Compiling": _COMPILING,
    "Set by whoever starts ranks": _LAUNCHERS,
}
NAMES = frozenset(one.name for group in GROUPS.values() for one in group)
