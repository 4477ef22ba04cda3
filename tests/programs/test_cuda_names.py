"""Every public name of torch.cuda and torch.backends.cuda is served or refused.

torch's own lists say what the names are, so a name of a newer torch is seen here.
"""

from __future__ import annotations

import json
import re

import pytest
import torch
from interpreter import Spawned

# Whose arguments cannot be left out: how programs call them.
CALLS = {
    "cuda.caching_allocator_delete": "f(torch.cuda.caching_allocator_alloc(64))",
    "cuda.caching_allocator_alloc": "torch.cuda.caching_allocator_delete(f(64))",
    "cuda.can_device_access_peer": "f(0, 0)",
    "cuda.check_error": "f(0)",
    "cuda.device": "f(0).__enter__()",
    "cuda.device_of": "f(x).__enter__()",
    "cuda.get_stream_from_external": "f(torch.cuda.Stream().cuda_stream)",
    "cuda.ExternalStream": "f(torch.cuda.Stream().cuda_stream)",
    "cuda.make_graphed_callables": "f(torch.nn.Linear(4, 4).cuda(), (x,))",
    "cuda.manual_seed": "f(1)",
    "cuda.manual_seed_all": "f(1)",
    "cuda.set_device": "f(0)",
    "cuda.set_per_process_memory_fraction": "f(1.0)",
    "cuda.set_rng_state": "f(torch.cuda.get_rng_state())",
    "cuda.set_rng_state_all": "f(torch.cuda.get_rng_state_all())",
    "cuda.set_stream": "f(torch.cuda.current_stream())",
    "cuda.set_sync_debug_mode": "f(0)",
    "cuda.stream": "f(torch.cuda.current_stream()).__enter__()",
    "cuda.StreamContext": "f(torch.cuda.current_stream()).__enter__()",
    "cuda.use_mem_pool": "f(torch.cuda.MemPool())",
    "cuda.graph": "f(torch.cuda.CUDAGraph())",
    "cuda.amp.custom_bwd": "f(lambda c, g: g)",
    "cuda.amp.custom_fwd": "f(lambda c, g: g)",
    "cuda.comm.broadcast": "f(x, [0])",
    "cuda.comm.broadcast_coalesced": "f([x], [0])",
    "cuda.comm.gather": "f([x], destination=0)",
    "cuda.comm.reduce_add": "f([x])",
    "cuda.comm.reduce_add_coalesced": "f([[x]])",
    "cuda.comm.scatter": "f(x, [0])",
    "cuda.nvtx.mark": "f('m')",
    "cuda.nvtx.range": "f('m')",
    "cuda.nvtx.range_start": "f('m')",
    "cuda.nvtx.range_end": "f(torch.cuda.nvtx.range_start('m'))",
    "cuda.nvtx.range_push": "f('m'); torch.cuda.nvtx.range_pop()",
    "cuda.nvtx.range_pop": "torch.cuda.nvtx.range_push('m'); f()",
    "cuda.tunable.enable": "f(False)",
    "cuda.tunable.tuning_enable": "f(False)",
    "cuda.tunable.record_untuned_enable": "f(False)",
    "backends.cuda.SDPAParams": "f(q, q, q, None, 0.0, False, False)",
    "backends.cuda.preferred_linalg_library": "f('magma')",
    "backends.cuda.preferred_blas_library": "f('cublaslt')",
    "backends.cuda.blas_workspace_size": "f(1 << 20)",
    "backends.cuda.cuFFTPlanCache": "torch.backends.cuda.cufft_plan_cache[0].size",
    "backends.cuda.cufft_plan_cache": "f.clear(); f.max_size = 4; f[0].size",
    "backends.cuda.matmul": "f.allow_tf32 = f.allow_tf32",
    "backends.cudnn.is_acceptable": "f(x)",
    "backends.cudnn.set_flags": "f(*f())",
}
CALLS |= {
    f"backends.cuda.{n}": "f(True)"
    for n in (
        "allow_fp16_bf16_reduction_math_sdp",
        "enable_cudnn_sdp",
        "enable_flash_sdp",
        "enable_math_sdp",
        "enable_mem_efficient_sdp",
    )
}
CALLS |= {
    f"backends.cuda.can_use_{n}_attention": (
        "f(torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False))"
    )
    for n in ("cudnn", "efficient", "flash")
}
CALLS |= {
    name.replace("cuda.", "nn.parallel."): call
    for name, call in CALLS.items()
    if ".comm." in name
}
CALLS["cuda.memory.change_current_allocator"] = "pass"  # of a library's own making
CALLS["cuda.change_current_allocator"] = "pass"
# Built of arguments that only a library or torch itself has.
ARE_THERE = re.compile(
    r".*\.(CudaError|cudaStatus|CUDAPluggableAllocator|DeferredCudaCallError"
    r"|\w*Storage|cuFFT\w+|cuBLASModule|OutOfMemoryError|AcceleratorError"
    r"|ContextProp|PropModule|CudnnModule|__allow_nonbracketed_mutation)"
)
# What only GPUs have, the call, and what its refusal says.
REFUSED = {
    "cuda.GreenContext": ("f.create(num_sms=8)", "not divided among contexts"),
    "cuda.gds.GdsFile": ("f('x.gds', os.O_CREAT | os.O_RDWR)", "not supported on"),
    "cuda.gds.gds_deregister_buffer": ("f(x.untyped_storage())", "not supported on"),
    "cuda.gds.gds_register_buffer": ("f(x.untyped_storage())", "not supported on"),
    "cuda.caching_allocator_disabled": ("f().__enter__()", "needs its caching alloc"),
    "cuda.caching_allocator_enable": ("f(False)", "needs its caching allocator"),
}
REFUSED["cuda.green_contexts.GreenContext"] = REFUSED["cuda.GreenContext"]
REFUSED |= {
    f"cuda.nccl.{n}": ("f([x])", "use torch.cuda.comm between devices of one process")
    for n in ("all_gather", "all_reduce", "broadcast", "reduce", "reduce_scatter")
}
REFUSED |= {
    f"cuda.tunable.{n}": ("f()", "one implementation of each product")
    for n in (
        *("get_filename", "get_max_tuning_duration", "get_max_tuning_iterations"),
        *("get_results", "get_rotating_buffer_size", "get_validators", "read_file"),
        *("mgpu_tune_gemm_in_file", "set_filename", "set_max_tuning_duration"),
        *("set_max_tuning_iterations", "set_numerical_check_tolerances"),
        *("set_rotating_buffer_size", "tune_gemm_in_file"),
    )
}
# The names of a newer torch.
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
if hasattr(torch.cuda.tunable, "get_cublaslt_requested_algo_count"):
    REFUSED |= {
        f"cuda.tunable.{n}_cublaslt_requested_algo_count": (
            "f()",
            "one implementation of each product",
        )
        for n in ("get", "set")
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
        names |= {
            n for n, v in vars(owner).items()
            if n[0] != "_"
            and getattr(v, "__module__", module.__name__) == module.__name__
        }
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
