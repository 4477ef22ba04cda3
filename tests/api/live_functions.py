"""Live calls: random numbers, collectives, ranges, switches, faults, types."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import torch
from live_calls import calls, child, filled, npu


@calls("get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all")
def generator_states() -> None:
    states = npu.get_rng_state_all()
    for restore in (
        lambda: npu.set_rng_state(states[0]),
        lambda: npu.set_rng_state_all(states),
    ):
        restore()
        assert npu.get_rng_state().equal(states[0])
        first = torch.rand(4, device="npu").tolist()
        restore()
        assert torch.rand(4, device="npu").tolist() == first


@calls("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed")
def seeds() -> None:
    for fix in (npu.manual_seed, npu.manual_seed_all):
        fix(7)
        first = torch.rand(4, device="npu").tolist()
        fix(7)
        assert torch.rand(4, device="npu").tolist() == first
        assert npu.initial_seed() == 7
    for draw in (npu.seed, npu.seed_all):
        draw()
        assert npu.initial_seed() != 7
    npu.manual_seed_all(7)


@calls(*(f"comm.{name}" for name in ("broadcast", "broadcast_coalesced")))
@calls(*(f"comm.{name}" for name in ("reduce_add", "scatter", "gather")))
def collectives() -> None:
    code = """
import os
x = torch.arange(4.0, device="npu:0")
copies = npu.comm.broadcast(x, [0, 1])
assert [c.device.index for c in copies] == [0, 1] and copies[1].tolist() == x.tolist()
assert npu.comm.broadcast_coalesced([x, x], [0, 1])[1][1].device.index == 1
assert npu.comm.reduce_add(copies, 1).tolist() == [0, 2, 4, 6]
parts = npu.comm.scatter(x, [0, 1])
assert parts[1].tolist() == [2, 3] and parts[1].device.index == 1
assert npu.comm.gather(parts, destination=0).tolist() == x.tolist()
print("done")
"""
    set_two = "import os; os.environ['NPU_DISPATCH_DEVICES'] = '2'\n"
    command = [sys.executable, "-c", set_two + "import torch; npu = torch.npu" + code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "done", done.stderr


@calls("nvtx.mark", "nvtx.range_push", "nvtx.range_pop", "mstx", "mstx.mark")
@calls("mstx.range_start", "mstx.range_end", "mstx.mstx_range")
def ranges() -> None:
    from npu_dispatch.npu.ranges.marks import recorder

    recorder.clear()
    with npu.profiler.profile():
        npu.nvtx.mark("a")
        assert npu.nvtx.range_push("b") == 0 and npu.nvtx.range_pop() == 0
        npu.mstx.mark("c", npu.current_stream())
        npu.mstx.range_end(npu.mstx.range_start("d"))
        npu.mstx.mstx_range("e")(lambda: None)()
    marks = {mark.name: mark for mark in recorder.marks()}
    recorder.clear()
    npu.synchronize()
    assert list(marks) == list("abcde")
    assert marks["c"].device_ns()[0] >= marks["c"].start_ns


@calls("jiterator._create_jit_fn", "jiterator._create_multi_output_jit_fn")
def compiled_functions() -> None:
    one = "template <typename T> T twice(T x, T by) { return x * by; }"
    two = "template <typename T> void both(T x, T& a, T& b) { a = x; b = -x; }"
    assert npu.jiterator._create_jit_fn(one, by=2)(filled(3)).tolist() == [6] * 4
    results = npu.jiterator._create_multi_output_jit_fn(two, 2)(filled(3))
    assert [r.tolist() for r in results] == [[3] * 4, [-3] * 4]


@calls("get_amp_supported_dtype", "is_autocast_enabled", "set_autocast_enabled")
@calls("get_autocast_dtype", "set_autocast_dtype")
def autocast() -> None:
    assert torch.bfloat16 in npu.get_amp_supported_dtype()
    assert not npu.is_autocast_enabled() and npu.get_autocast_dtype() == torch.float16
    npu.set_autocast_dtype(torch.bfloat16)
    npu.set_autocast_enabled(True)
    try:
        x = torch.rand(2, 2, device="npu")
        assert npu.is_autocast_enabled() and (x @ x).dtype == torch.bfloat16
    finally:
        npu.set_autocast_enabled(False)
        npu.set_autocast_dtype(torch.float16)
        torch.clear_autocast_cache()


@calls("get_npu_overflow_flag", "clear_npu_overflow_flag")
@calls("utils.is_support_inf_nan", "utils.npu_check_overflow")
def overflow() -> None:
    assert npu.utils.is_support_inf_nan() is True
    assert npu.utils.npu_check_overflow(filled(math.inf))
    assert not npu.utils.npu_check_overflow(filled(1))
    code = """
import os; os.environ["INF_NAN_MODE_ENABLE"] = "0"
print(npu.get_npu_overflow_flag(), npu.clear_npu_overflow_flag())
"""
    assert child(code) == "False None"


@calls("matmul.allow_hf32", "conv.allow_hf32", "aclnn.allow_hf32", "aclnn.version")
@calls("config.allow_internal_format", "set_mm_bmm_format_nd", "get_mm_bmm_format_nd")
@calls("set_compile_mode", "is_jit_compile_false", "set_option")
def switches() -> None:
    code = """
import warnings; warnings.simplefilter("ignore")
assert npu.matmul.allow_hf32 is False and npu.conv.allow_hf32 is True
npu.matmul.allow_hf32 = True
npu.aclnn.allow_hf32 = False
assert npu.matmul.allow_hf32 is True and npu.conv.allow_hf32 is False
assert npu.aclnn.version() is None
npu.config.allow_internal_format = True
assert npu.config.allow_internal_format is True
npu.set_option({"MM_BMM_ND_ENABLE": "disable"})
assert npu.get_mm_bmm_format_nd() is False
npu.set_mm_bmm_format_nd(True)
assert npu.get_mm_bmm_format_nd() is True
npu.set_compile_mode(jit_compile=False)
print(npu.is_jit_compile_false())
"""
    assert child(code) == "True"


@calls("init_dump", "set_dump", "finalize_dump", "set_aoe")
def dumps() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rules = {"dump_path": folder, "dump_list": ["add"]}
        Path(folder, "c.json").write_text(json.dumps({"dump": rules}))
        npu.init_dump()
        npu.set_dump(f"{folder}/c.json")
        filled(1) + 1
        npu.finalize_dump()
        assert "aten.add" in Path(folder, "dump.jsonl").read_text()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            npu.set_aoe(f"{folder}/aoe")
        assert Path(folder, "aoe").is_dir()


@calls("stop_device", "restart_device", "check_uce_in_memory", "stress_detect")
def faults() -> None:
    code = """
assert npu.stress_detect() == 0 and npu.check_uce_in_memory(0) == 0
assert npu.stop_device(0) == 0
try: torch.ones(1, device="npu")
except RuntimeError as error: print("FORCE STOP" in str(error))
npu.restart_device(0)
print(torch.ones(1, device="npu").item())
"""
    assert child(code).split() == ["True", "1.0"]


KINDS = ("Bool", "Byte", "Short", "Long", "Int", "Half", "Char", "Double", "Float")


@calls(*(f"{kind}Storage" for kind in KINDS), *(f"{kind}Tensor" for kind in KINDS))
def legacy_types() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in KINDS:
            x = getattr(npu, f"{kind}Tensor")([0, 1])
            assert x.is_npu and x.type() == f"torch.npu.{kind}Tensor"
            assert isinstance(x, getattr(npu, f"{kind}Tensor"))
            storage = getattr(npu, f"{kind}Storage")(3)
            assert len(storage) == 3 and storage.dtype == x.dtype


@calls("_sanitizer.enable_npu_sanitizer")
def sanitizer() -> None:
    code = """
npu._sanitizer.enable_npu_sanitizer()
x = torch.zeros(1000, device="npu")
try:
    with npu.stream(npu.Stream()): x.add_(1)
    npu.synchronize()
except Exception as error: print(type(error).__name__)
"""
    assert child(code) == "NPUSanitizerErrors"
