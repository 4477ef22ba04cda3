"""Calls by torch.cuda's own keywords, after redirect_cuda()."""

SIGNATURES = """
import inspect, pkgutil, importlib, sys, torch, npu_dispatch

# What is meant to differ: our default, or a parameter that we have besides.
DIFFERENT = {
    # Replays of freed inputs raise unless a program asks for the other.
    *(
        f"{module}{name}(check_input_liveness)"
        for module in ("", "graphs.")
        for name in ("graph", "CUDAGraph.capture_begin")
    ),
    # The device's name.
    *(f"{m}{f}_rng_state(device)" for m in ("", "random.") for f in ("get", "set")),
}
for found in pkgutil.iter_modules(torch.cuda.__path__):
    if not found.name.startswith("_"):
        importlib.import_module(f"torch.cuda.{found.name}")

def parameters(function):
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # C code without a signature
        return None
    return [p for p in found if p.kind == p.POSITIONAL_OR_KEYWORD]

def callables(module, prefix):
    for name, value in sorted(vars(module).items()):
        full, home = prefix + name, str(getattr(value, "__module__", ""))
        if name.startswith("_") or not callable(value):
            continue
        if not home.startswith("torch.cuda") or "Storage" in name or "Tensor" in name:
            continue
        yield full, lambda m=module, n=name: getattr(m, n), value
        for method in vars(value) if inspect.isclass(value) else ():
            if not method.startswith("_") and callable(getattr(value, method)):
                yield (
                    f"{full}.{method}",
                    lambda m=module, n=name, f=method: getattr(getattr(m, n), f),
                    getattr(value, method),
                )

modules = [m for n, m in sys.modules.items() if n.partition("torch.cuda")[0] == ""]
before = [
    (full, now, parameters(value))
    for module in modules
    for full, now, value in callables(module, f"{module.__name__[11:]}.".lstrip("."))
]
npu_dispatch.redirect_cuda()
wrong = []
for full, now, theirs in before:
    try:
        ours = parameters(now())
    except AttributeError:
        wrong.append(f"{full} is missing")
        continue
    if theirs is None or ours is None:
        continue
    for place, p in enumerate(theirs):
        own = ours[place] if place < len(ours) else None
        what = f"{full}({p.name})"
        if own is None or own.name != p.name:
            wrong.append(f"{what}: {own}")
        elif repr(own.default) != repr(p.default) and what not in DIFFERENT:
            wrong.append(f"{what}: default {own.default!r}, not {p.default!r}")
assert len(before) > 250, len(before)
assert not wrong, chr(10).join(wrong)
"""

CALLS = """
import tempfile, torch, npu_dispatch
npu_dispatch.redirect_cuda()
cuda = torch.cuda
g, s = cuda.CUDAGraph(), cuda.Stream()
with cuda.graph(cuda_graph=g, pool=None, stream=None, capture_error_mode="global"):
    x = torch.ones(2, device="cuda") + 1
g.replay()
assert x.tolist() == [2, 2]
assert cuda.get_device_name(device=0) == torch.npu.get_device_name(device_name=0)
assert cuda.can_device_access_peer(device=0, peer_device=1)
with cuda.StreamContext(stream=s):
    assert cuda.current_stream() == s
assert cuda.get_stream_from_external(data_ptr=s.cuda_stream, device=0) == s
assert cuda.ExternalStream(0) == cuda.default_stream()
assert isinstance(cuda.Event(enable_timing=True, external=False), cuda.Event)
assert cuda.memory_snapshot(include_traces=False) == cuda.memory_snapshot()
assert cuda.MemPool().snapshot(include_traces=False) == []
g.debug_dump(debug_path=tempfile.mktemp())
assert cuda.is_bf16_supported()
scaler = torch.amp.GradScaler()
scaler.scale(torch.ones(1, device="cuda"))
scaler.update(torch.tensor(4.0, device="cuda"))
assert scaler.get_scale() == 4
plus = cuda.jiterator._create_jit_fn("template <typename T> T f(T x) { return x + 1; }")
assert plus(torch.ones(2, device="cuda")).tolist() == [2, 2]
assert cuda._exchange_device(1) == 0 and cuda._exchange_device(0) == 1
# What Megatron's graphs, random trackers and memory snapshots call.
handle, own = cuda.graph_pool_handle(), torch._C
own._cuda_beginAllocateCurrentThreadToPool(0, handle)
y = torch.zeros(4, device="cuda")
own._cuda_endAllocateToPool(0, handle)
z = torch.zeros(4, device="cuda")
[segment] = [s for s in cuda.memory_snapshot() if s["segment_pool_id"] == handle]
place, bytes = segment["address"], segment["total_size"]
assert place <= y.data_ptr() < place + bytes and segment["active_size"] == 512
assert not place <= z.data_ptr() < place + bytes
y = None
own._cuda_releasePool(0, handle)
assert all(s["segment_pool_id"] != handle for s in cuda.memory_snapshot())
assert all(hasattr(torch.Generator, n) for n in ("clone_state", "graphsafe_get_state"))
assert not hasattr(own, "_cuda_setRNGState")
cuda.memory._record_memory_history(
    True, trace_alloc_max_entries=3, trace_alloc_record_context=True
)
y = [torch.zeros(4, device="cuda") for _ in range(5)]
history = cuda.memory._snapshot()["device_traces"][0]
assert [bool(entry["frames"]) for entry in history] == [True] * 3, history
cuda.memory._record_memory_history(False)
for refused, word in (
    (lambda: own._cuda_getAllocatorBackend(), "torch_npu.md"),
    (lambda: own.of_no_torch, "module 'torch._C' has no attribute 'of_no_torch'"),
    (lambda: own._cuda_beginAllocateToPool(0, handle), "use_mem_pool"),
    (lambda: cuda.Event(external=True), "ExternalEvent"),
    (lambda: cuda._compile_kernel("__global__ void f(float* x){}", "f"), "kernels"),
    (lambda: cuda.get_device_properties(0).shared_memory_per_multiprocessor, "GPU"),
):
    try:
        refused()
    except (RuntimeError, AttributeError) as error:
        assert word in str(error), error
    else:
        raise AssertionError(word)
"""


def test_each_function_takes_the_parameters_of_torch_cuda(python):
    python(SIGNATURES)


def test_calls_by_keywords_of_torch_cuda_work(python):
    python(CALLS, NPU_DISPATCH_DEVICES="2")
