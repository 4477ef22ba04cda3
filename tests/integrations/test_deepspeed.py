"""Each call that DeepSpeed's accelerator for npu makes; itself: compatibility/."""

from __future__ import annotations

# Each call of deepspeed/accelerator/npu_accelerator.py, as it makes it.
CALLS = """
import ctypes, os, sys, warnings
warnings.simplefilter("ignore")
import torch
import torch.npu
assert sys.modules["torch.npu"] is torch.npu
npu = torch.npu

ran = []
npu._lazy_call(lambda: ran.append(1))
assert npu.is_available() and npu.device_count() == 2 and not ran
assert os.environ["ASCEND_RT_VISIBLE_DEVICES"] == "0,2"  # of three devices
npu.set_device(1)
assert npu.current_device() == 1 and ran == [1]
npu.set_device(0)
npu.synchronize(None); npu.synchronize(1)

npu.manual_seed(3); npu.manual_seed_all(5)
assert npu.initial_seed() == npu.default_generators[1].initial_seed() == 5
for where in ((), (1,)):
    state = npu.get_rng_state(*where)
    first = torch.rand(3, device=f"npu:{(*where, 0)[0]}")
    npu.set_rng_state(state, *where)
    assert torch.rand(3, device=first.device).equal(first)
del first

assert npu.current_stream(None) == npu.default_stream(None)
stream, event = npu.Stream(), npu.Event(enable_timing=True)
with npu.stream(stream):
    assert npu.current_stream(0) == stream
    x = torch.ones(1 << 20, device="npu")
    event.record(stream)
event.synchronize()
assert event.query() and str(x.device).startswith("npu:")

assert npu.memory_allocated(None) == npu.memory_allocated(0) == x.nbytes
assert npu.memory_allocated(1) == 0
del x
npu.reset_max_memory_allocated(0); npu.reset_max_memory_cached(0)
assert npu.max_memory_allocated(0) == 0
npu.reset_peak_memory_stats(0)
assert npu.memory_cached(0) == npu.memory_reserved(0) == npu.max_memory_cached(0)
assert npu.max_memory_reserved(0) == npu.memory_reserved(0) > 0
assert npu.memory_stats(0)["reserved_bytes.all.current"] == npu.memory_reserved(0)
npu.empty_cache()
assert npu.memory_reserved(0) == 0
assert npu.get_device_properties(None).total_memory == npu.mem_get_info()[1]
assert npu.get_device_properties(1).total_memory > 0

host = (ctypes.c_char * (4 << 12))()
start = (ctypes.addressof(host) + 4095) // 4096 * 4096
assert npu.npurt().npuHostRegister(start, 4096, 2) == 0
assert npu.npurt().npuHostUnregister(start) == 0

graph, y = npu.NPUGraph(), torch.ones(4, device="npu")
npu.synchronize()
with npu.graph(graph, None, None):
    z = y + 1
y.fill_(8)
graph.replay()
assert z.tolist() == [9] * 4

assert npu.is_bf16_supported() is True
for kind in "BFloat16 Byte Double Float Half Int Long".split():
    T = getattr(npu, f"{kind}Tensor")
    t = T([1, 2])
    assert isinstance(t, T) and t.type() == f"torch.npu.{kind}Tensor"
    assert t.tolist() == [1, 2] and isinstance(torch.ones(1).type(T), T)
print("ok")
"""


def test_each_call_that_deepspeeds_accelerator_makes(python):
    env = {"NPU_DISPATCH_DEVICES": "3", "ASCEND_RT_VISIBLE_DEVICES": "0,2"}

    assert python(CALLS, **env).stdout.strip() == "ok"
