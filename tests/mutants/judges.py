"""Who is asked about a mutant, by the folder and the file that it is in."""

FOLDERS = ("taskqueue", "memory", "ops", "graph", "sanitizer", "distributed")
# A folder stands for those that its tests are of, too.
WITH = {"taskqueue": ("taskqueue", "engine", "interop", "placement", "observe")}

# C++ suites, a folder's own first; none knows of operators or collectives.
SUITES: dict[str, tuple[str, ...]] = {
    "taskqueue": (
        *("taskqueue", "engine", "interop", "placement", "observe"),
        *("steady", "graph", "faults", "late"),
        *("interrupted", "sanitizer", "memory"),
    ),
    "memory": ("memory", "steady", "graph", "faults"),
    "graph": ("graph", "interrupted", "steady", "faults", "late"),
    "sanitizer": ("sanitizer",),
    "ops": (),
    "distributed": (),
}
# On a driver of the tests, where a suite is of one.
DRIVERS = {"late": "libnpu_by_hand.so"}
# Those of them that share data between threads, for memory orders.
UNDER_TSAN: dict[str, tuple[str, ...]] = {
    "taskqueue": ("taskqueue", "engine", "interop", "placement", "observe", "graph"),
    "memory": ("memory", "engine"),
    "graph": ("graph", "engine"),
}
# Half a minute of interleavings and stale reads, for what they are of.
MODEL = "model"
MODELLED = (
    *("ring.h", "sequence.h", "sole_user.h", "parking.h"),
    *("sleep_lock.h", "sole_lock.h"),
)
# What is asked when they found nothing.
PYTHON = {
    "taskqueue": (
        "unit/test_streams.py unit/test_events.py unit/test_errors.py "
        "api/test_external.py unit/test_stats.py trace/test_trace.py "
        "trace/test_torch_profiler.py aio/test_await.py api/test_fault.py "
        "api/test_waits.py graphs/test_replay.py api/test_switches.py "
        "unit/test_launch_blocking.py stress/test_lifecycle.py "
        "observability/test_admin.py"
    ),
    "memory": (
        "unit/test_memory.py api/test_memory.py api/test_alloc_conf.py "
        "api/test_memory_history.py "
        "unit/test_copies.py unit/test_stats.py graphs/test_replay.py"
    ),
    "graph": "graphs api/test_switches.py",
    "sanitizer": (
        "sanitizer/test_switch.py races/test_races.py sanitizer/test_explore.py "
        "sanitizer/test_explore_waits.py sanitizer/test_random_programs.py "
        "sanitizer/test_staging_buffer.py"
    ),
    "host": (
        "ecosystem/test_kernel_pieces.py ecosystem/test_widened.py "
        "ecosystem/test_foreach.py unit/test_kernel_threads.py "
        "unit/test_kernel_memory.py"
    ),
    "ops": (
        "ecosystem/test_shapes.py unit/test_copies.py "
        "ecosystem/test_result_layouts.py ecosystem/test_overlap.py "
        "ecosystem/test_foreach.py ecosystem/test_custom_ops.py "
        "ecosystem/test_layouts.py unit/test_plan_eviction.py unit/test_random.py "
        "ecosystem/test_math.py ecosystem/test_storages.py unit/test_errors.py "
        "ecosystem/test_autograd.py ecosystem/test_tracing.py "
        "ecosystem/test_places.py graphs/test_replay.py ecosystem/test_sparse.py "
        "ecosystem/test_widened.py ecosystem/test_conversion.py "
        "ecosystem/test_layers.py ecosystem/test_amp.py unit/test_host_memory.py "
        "unit/test_refused.py"
    ),
    "distributed": (
        "distributed/test_collectives.py distributed/test_errors.py "
        "distributed/test_streams.py distributed/test_training.py "
        "distributed/test_flight_recorder.py"
    ),
}


def suites_of(folder: str, path: str) -> tuple[str, ...]:
    """Return the C++ suites to ask about a file, in their order."""
    modelled = path.rsplit("/", 1)[1] in MODELLED
    return (*SUITES[folder], MODEL) if modelled else SUITES[folder]


def sees_orders(folder: str) -> bool:
    """Whether any judge can: C++ suites, by the model or ThreadSanitizer."""
    return folder in UNDER_TSAN
