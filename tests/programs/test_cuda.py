"""Programs for CUDA: each name is served or refused; what scripts are made of works.

torch's own lists say what the names are, so a name of a newer torch is seen here. One
process runs all idioms of a file, after the redirect: in the middle of a program, what
an idiom leaves behind is there for the next.
"""

import functools
import json
import re
from pathlib import Path

import pytest
import torch
from interpreter import Forked, Spawned, shared_zygote

# How programs call those whose arguments cannot be left out.
CALLED = {
    "f(torch.cuda.caching_allocator_alloc(64))": "cuda.caching_allocator_delete",
    "torch.cuda.caching_allocator_delete(f(64))": "cuda.caching_allocator_alloc",
    "f(0, 0)": "cuda.can_device_access_peer",
    "f(0)": "cuda.check_error cuda.set_device cuda.set_sync_debug_mode",
    "f(0).__enter__()": "cuda.device",
    "f(x).__enter__()": "cuda.device_of",
    "f(torch.cuda.Stream().cuda_stream)": (
        "cuda.get_stream_from_external cuda.ExternalStream"
    ),
    "f(torch.nn.Linear(4, 4).cuda(), (x,))": "cuda.make_graphed_callables",
    "f(1)": "cuda.manual_seed cuda.manual_seed_all",
    "f(1.0)": "cuda.set_per_process_memory_fraction",
    "f(torch.cuda.get_rng_state())": "cuda.set_rng_state",
    "f(torch.cuda.get_rng_state_all())": "cuda.set_rng_state_all",
    "f(torch.cuda.current_stream())": "cuda.set_stream",
    "f(torch.cuda.current_stream()).__enter__()": "cuda.stream cuda.StreamContext",
    "f(torch.cuda.MemPool())": "cuda.use_mem_pool",
    "f(torch.cuda.CUDAGraph())": "cuda.graph",
    "f(lambda c, g: g)": "cuda.amp.custom_bwd cuda.amp.custom_fwd",
    "f(x, [0])": "cuda.comm.broadcast cuda.comm.scatter",
    "f([x], [0])": "cuda.comm.broadcast_coalesced",
    "f([x], destination=0)": "cuda.comm.gather",
    "f([x])": "cuda.comm.reduce_add",
    "f([[x]])": "cuda.comm.reduce_add_coalesced",
    "f('m')": "cuda.nvtx.mark cuda.nvtx.range cuda.nvtx.range_start",
    "f(torch.cuda.nvtx.range_start('m'))": "cuda.nvtx.range_end",
    "f('m'); torch.cuda.nvtx.range_pop()": "cuda.nvtx.range_push",
    "torch.cuda.nvtx.range_push('m'); f()": "cuda.nvtx.range_pop",
    "f(False)": "cuda.tunable.enable cuda.tunable.tuning_enable "
    "cuda.tunable.record_untuned_enable",
    "f(q, q, q, None, 0.0, False, False)": "backends.cuda.SDPAParams",
    "f('magma')": "backends.cuda.preferred_linalg_library",
    "f('cublaslt')": "backends.cuda.preferred_blas_library",
    "f(1 << 20)": "backends.cuda.blas_workspace_size",
    "torch.backends.cuda.cufft_plan_cache[0].size": "backends.cuda.cuFFTPlanCache",
    "f.clear(); f.max_size = 4; f[0].size": "backends.cuda.cufft_plan_cache",
    "f.allow_tf32 = f.allow_tf32": "backends.cuda.matmul",
    "f(x)": "backends.cudnn.is_acceptable",
    "f(*f())": "backends.cudnn.set_flags",
    "f(True)": "backends.cuda.allow_fp16_bf16_reduction_math_sdp "
    "backends.cuda.enable_cudnn_sdp backends.cuda.enable_flash_sdp "
    "backends.cuda.enable_math_sdp backends.cuda.enable_mem_efficient_sdp",
    "f(torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False))": (
        "backends.cuda.can_use_cudnn_attention backends.cuda.can_use_flash_attention "
        "backends.cuda.can_use_efficient_attention"
    ),
    # Of a library's own making.
    "pass": "cuda.change_current_allocator cuda.memory.change_current_allocator",
}
CALLS = {name: call for call, names in CALLED.items() for name in names.split()}
CALLS |= {
    name.replace("cuda.", "nn.parallel."): call
    for name, call in CALLS.items()
    if ".comm." in name
}
# Built of arguments that only a library or torch itself has.
ARE_THERE = re.compile(
    r".*\.(CudaError|cudaStatus|CUDAPluggableAllocator|DeferredCudaCallError"
    r"|\w*Storage|cuFFT\w+|cuBLASModule|OutOfMemoryError|AcceleratorError"
    r"|ContextProp|PropModule|CudnnModule|__allow_nonbracketed_mutation)"
)
# What only GPUs have, by the call and what its refusal says.
ONLY_GPUS = {
    ("f.create(num_sms=8)", "not divided among contexts"): "cuda.GreenContext "
    "cuda.green_contexts.GreenContext",
    ("f('x.gds', os.O_CREAT | os.O_RDWR)", "not supported on"): "cuda.gds.GdsFile",
    ("f(x.untyped_storage())", "not supported on"): "cuda.gds.gds_deregister_buffer "
    "cuda.gds.gds_register_buffer",
    ("f().__enter__()", "needs its caching alloc"): "cuda.caching_allocator_disabled",
    ("f(False)", "needs its caching allocator"): "cuda.caching_allocator_enable",
    ("f([x])", "use torch.cuda.comm between devices of one process"): (
        "cuda.nccl.all_gather cuda.nccl.all_reduce cuda.nccl.broadcast "
        "cuda.nccl.reduce cuda.nccl.reduce_scatter"
    ),
}
REFUSED = {name: why for why, names in ONLY_GPUS.items() for name in names.split()}
TUNABLE = (
    "get_filename get_max_tuning_duration get_max_tuning_iterations get_results "
    "get_rotating_buffer_size get_validators read_file mgpu_tune_gemm_in_file "
    "set_filename set_max_tuning_duration set_max_tuning_iterations "
    "set_numerical_check_tolerances set_rotating_buffer_size tune_gemm_in_file "
)
# The names of a newer torch.
if hasattr(torch.cuda.tunable, "get_cublaslt_requested_algo_count"):
    TUNABLE += "get_cublaslt_requested_algo_count set_cublaslt_requested_algo_count"
REFUSED |= {
    f"cuda.tunable.{name}": ("f()", "one implementation of each product")
    for name in TUNABLE.split()
}
if hasattr(torch.cuda.graphs, "export_dot"):
    CALLS["cuda.graph_annotations.mark_kernels"] = "f('m').__enter__()"
    REFUSED |= {
        f"cuda.{n}": ("f('g.dot')", "graphs of the npu call no hooks")
        for n in ("export_dot", "export_graph_data")
    }
    REFUSED |= {
        f"cuda.graphs.register_graph_{n}_hook": ("f(print)", "call no hooks")
        for n in (
            *("capture_start", "capture_end", "instantiate", "destroy"),
            *("replay_start", "replay_end"),
        )
    }
# The same functions, in torch.cuda's modules of their own.
for table in (CALLS, REFUSED):
    for name, call in list(table.items()):
        for module in ("memory", "graphs", "random", "streams"):
            longer = name.replace("cuda.", f"cuda.{module}.", 1)
            if name.startswith("cuda.") and name.count(".") == 1:
                table.setdefault(longer, call)

RUNNER = """
import contextlib, importlib, io, json, os, pkgutil, sys, warnings
import torch
warnings.simplefilter("ignore")
calls = json.load(open("calls.json"))
modules = ["cuda", "backends.cuda", "backends.cudnn", "nn.parallel.comm"]
for found in pkgutil.iter_modules(torch.cuda.__path__):
    if not found.name.startswith("_"):
        modules.append("cuda." + found.name)
x = torch.ones(2, 4, device="cuda")
q = torch.ones(1, 2, 4, 8, device="cuda")
told = {}
for module_name in modules:
    module = importlib.import_module("torch." + module_name)
    names = set(getattr(module, "__all__", []))
    if module_name in ("backends.cudnn", "cuda.sparse", "nn.parallel.comm"):
        owner = type(module) if "cudnn" in module_name else module
        names |= {n for n, v in vars(owner).items() if n[0] != "_"
                  and getattr(v, "__module__", module.__name__) == module.__name__}
    for name in sorted(names):
        full = f"{module_name}.{name}"
        value = getattr(module, name)
        code = calls.get(full, "f()" if callable(value) else "f")
        try:
            exec(code, {"torch": torch, "os": os, "f": value, "x": x, "q": q})
            told[full] = None
        except BaseException as error:
            told[full] = f"{type(error).__name__}: {error}"
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """What calling each name says, None where it works."""
    folder = tmp_path_factory.mktemp("names")
    calls = CALLS | {name: call for name, (call, _) in REFUSED.items()}
    (folder / "calls.json").write_text(json.dumps(calls))
    run = Spawned(folder)(RUNNER, NPU_DISPATCH_CUDA="1")
    return json.loads(run.stdout.splitlines()[-1])


def test_every_name_works_or_is_listed_as_refused(told):
    assert len(told) > 250
    failed = {
        name: text
        for name, text in told.items()
        if text and name not in REFUSED and not ARE_THERE.fullmatch(name)
    }
    # Which of these a machine has differs.
    sensors = {"cuda.temperature", "cuda.power_draw", "cuda.clock_rate"} & set(failed)
    for name in sensors:
        assert "this machine tells no" in failed.pop(name)
    assert failed == {}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refusal_is_one_sentence_that_says_why(told, name):
    if name not in told:  # only in torch.cuda itself
        assert name.count(".") == 2
        assert name.replace(name.split(".")[1] + ".", "", 1) in told
        return
    text = told[name]
    assert text is not None, "it works: strike it from the list"
    assert re.search(REFUSED[name][1], text)
    assert text.startswith("RuntimeError: ")
    assert "\n" not in text


def test_no_call_is_listed_that_torch_has_not(told):
    missing = {n for n in CALLS if n not in told and n.count(".") < 2}

    assert missing == set()


HERE = Path(__file__).parent
FILES = ("cuda_idioms.txt", "cuda_compiled.txt")


def idioms(file: str) -> dict[str, str]:
    """Return the code of each; "# name" begins it."""
    parts = (HERE / file).read_text().split("\n# ")[1:]
    return {name: code for name, _, code in (part.partition("\n") for part in parts)}


IDIOM_RUNNER = """
import json, pathlib, sys, traceback, warnings
import torch
from torch import nn
from torch.nn import functional as F
warnings.simplefilter("ignore")
told = {}
for name, code in json.load(open(sys.argv[1])).items():
    # torch.jit reads the source of what it scripts.
    path = name.replace(" ", "_") + ".py"
    pathlib.Path(path).write_text(code)
    names = {"__name__": "idiom", "torch": torch, "nn": nn, "F": F}
    try:
        exec(compile(code, path, "exec"), names)
    except BaseException as error:
        told[name] = "".join(traceback.format_exception(error)[-6:])
torch.cuda.synchronize()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory):
    """What failed of a file, and how, in one process."""

    @functools.cache
    def run(file: str) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("idioms")
        (folder / "idioms.json").write_text(json.dumps(idioms(file)))
        done = Forked(folder, shared_zygote())(
            IDIOM_RUNNER, "idioms.json", NPU_DISPATCH_CUDA="1"
        )
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize(
    ("file", "name"), [(file, name) for file in FILES for name in idioms(file)]
)
def test_an_idiom(failures, file, name):
    assert name not in failures(file), failures(file)[name]
