"""Numeric switches, overflow, options, dump, limits: kept, checked, restored."""

import json
import math

import pytest
import torch


@pytest.fixture(autouse=True)
def restore():
    yield
    torch.npu.matmul.allow_hf32 = False
    torch.npu.conv.allow_hf32 = True
    torch.npu.set_mm_bmm_format_nd(True)
    torch.npu.config.allow_internal_format = False


def test_hf32_has_the_contracted_defaults():
    assert torch.npu.matmul.allow_hf32 is False
    assert torch.npu.conv.allow_hf32 is True
    assert torch.npu.aclnn.allow_hf32 is True


@pytest.mark.parametrize("switch", [torch.npu.matmul, torch.npu.conv])
def test_hf32_is_kept_and_an_unknown_switch_is_none(switch):
    switch.allow_hf32 = not switch.allow_hf32
    assert switch.allow_hf32 is (switch is torch.npu.matmul)
    switch.no_such_switch = 1
    assert switch.no_such_switch is None


TAKES_A_BOOL = {
    "matmul": lambda value: setattr(torch.npu.matmul, "allow_hf32", value),
    "conv": lambda value: setattr(torch.npu.conv, "allow_hf32", value),
    "aclnn": lambda value: setattr(torch.npu.aclnn, "allow_hf32", value),
    "flags": lambda value: torch.npu.aclnn.flags(value).__enter__(),
    "config": lambda v: setattr(torch.npu.config, "allow_internal_format", v),
    "format": lambda value: torch.npu.set_mm_bmm_format_nd(value),
    "compile": lambda value: torch.npu.set_compile_mode(value),
    "autocast": lambda value: torch.npu.set_autocast_enabled(value),
    "compatible": lambda value: torch.npu.use_compatible_impl(value),
    "pools": lambda value: torch.npu.set_strict_stream_pools(value),
}


@pytest.mark.parametrize("name", TAKES_A_BOOL)
def test_the_text_false_switches_nothing_on(name):
    def kept() -> list[object]:
        return [
            torch.npu.matmul.allow_hf32,
            torch.npu.conv.allow_hf32,
            torch.npu.config.allow_internal_format,
            torch.npu.get_mm_bmm_format_nd(),
            torch.npu.is_autocast_enabled(),
        ]

    before = kept()
    with pytest.raises(TypeError, match="bool"):
        TAKES_A_BOOL[name]("False")
    assert kept() == before


def test_autocast_computes_in_the_dtype_that_is_set():
    assert torch.bfloat16 in torch.npu.get_amp_supported_dtype()
    assert torch.npu.get_autocast_dtype() == torch.float16
    torch.npu.set_autocast_dtype(torch.bfloat16)
    torch.npu.set_autocast_enabled(True)
    try:
        x = torch.ones(2, 2, device="npu")
        assert torch.npu.is_autocast_enabled() and (x @ x).dtype == torch.bfloat16
    finally:
        torch.npu.set_autocast_enabled(False)
        torch.npu.set_autocast_dtype(torch.float16)
        torch.clear_autocast_cache()


def test_aclnn_and_conv_are_one_switch():
    torch.npu.conv.allow_hf32 = False
    assert not torch.npu.aclnn.allow_hf32
    with torch.npu.aclnn.flags(allow_hf32=True):
        assert torch.npu.conv.allow_hf32
    assert not torch.npu.conv.allow_hf32
    with pytest.warns(UserWarning):
        assert torch.npu.aclnn.version() is None


def test_internal_formats_can_be_asked_about():
    torch.npu.config.allow_internal_format = True

    assert torch.npu.config.allow_internal_format is True


def test_matrix_format_and_compile_mode():
    torch.npu.set_mm_bmm_format_nd(False)
    assert torch.npu.get_mm_bmm_format_nd() is False
    assert torch.npu.is_jit_compile_false() is True
    torch.npu.set_compile_mode()
    with pytest.warns(UserWarning):
        torch.npu.set_compile_mode(jit_compile=True)


def test_options_are_checked_before_any_is_set():
    option = {"MM_BMM_ND_ENABLE": "disable", "ACL_AICORE_NUM": 4}
    torch.npu.set_option(option)

    assert option["ACL_AICORE_NUM"] == 4  # the caller's dict is not rewritten
    assert torch.npu.get_mm_bmm_format_nd() is False
    with pytest.raises(ValueError, match="ACL_AICORE_NUM"):
        torch.npu.set_option({"MM_BMM_ND_ENABLE": "enable", "ACL_AICORE_NUM": 33})
    assert torch.npu.get_mm_bmm_format_nd() is False
    with pytest.warns(UserWarning, match="deprecated"):
        torch.npu.set_option({"ACL_OP_SELECT_IMPL_MODE": "high_precision"})


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_overflow_is_found(bad):
    check = torch.npu.utils.npu_check_overflow

    assert check(bad) and not check(1.0)
    assert check(torch.tensor([1, bad], device="npu"))
    assert not check(torch.ones(3, dtype=torch.float16, device="npu"))


def test_the_overflow_flag_belongs_to_saturation_mode(monkeypatch):
    assert torch.npu.utils.is_support_inf_nan() is True
    with pytest.raises(RuntimeError, match="npu_check_overflow"):
        torch.npu.get_npu_overflow_flag()
    with pytest.warns(UserWarning):
        torch.npu.clear_npu_overflow_flag()

    monkeypatch.setenv("INF_NAN_MODE_ENABLE", "0")

    assert torch.npu.utils.is_support_inf_nan() is False
    assert torch.npu.get_npu_overflow_flag() is False
    torch.npu.clear_npu_overflow_flag()


def test_a_dump_describes_the_operators_that_ran(tmp_path):
    config = tmp_path / "dump.json"
    rules = {"dump_path": str(tmp_path / "out"), "dump_list": ["add", "mul"]}
    config.write_text(json.dumps({"dump": rules}))
    x = torch.tensor([1.0, 3.0], device="npu")
    torch.npu.init_dump()
    torch.npu.set_dump(str(config))
    try:
        y = (x + 1) * 2 - 1
        # A crash would leave what there is before the end.
        lines = (tmp_path / "out" / "dump.jsonl").read_text().splitlines()
    finally:
        torch.npu.finalize_dump()
    _ = x + 5

    assert y.tolist() == [3, 7]
    assert (tmp_path / "out" / "dump.jsonl").read_text().splitlines() == lines
    add, mul = map(json.loads, lines)
    assert add["op"] == "aten.add.Tensor" and mul["op"] == "aten.mul.Tensor"
    assert add["inputs"][0]["max"] == 3 and add["outputs"][0]["mean"] == 3
    assert mul["outputs"][0] | {"min": 4.0, "max": 8.0} == mul["outputs"][0]


def test_a_dump_needs_its_file_and_its_order(tmp_path):
    with pytest.raises(AssertionError, match="no such"):
        torch.npu.set_dump(str(tmp_path / "none"))
    (tmp_path / "c.json").write_text("{}")
    with pytest.raises(RuntimeError, match="init_dump"):
        torch.npu.set_dump(str(tmp_path / "c.json"))
    torch.npu.finalize_dump()


def test_aoe_makes_its_folder(tmp_path):
    with pytest.warns(UserWarning):
        torch.npu.set_aoe(str(tmp_path / "a" / "b"))

    assert (tmp_path / "a" / "b").is_dir()


def test_limits_are_kept_per_device_and_stream():
    stream = torch.npu.Stream()
    everything = torch.npu.get_device_limit(0)
    try:
        torch.npu.set_device_limit(0, vector_num=1)
        assert torch.npu.get_device_limit(0) == {**everything, "vector_core_num": 1}
        assert torch.npu.get_stream_limit(stream)["vector_core_num"] == 1
        torch.npu.set_stream_limit(stream, cube_num=1)
        assert torch.npu.get_stream_limit(stream)["cube_core_num"] == 1
        torch.npu.reset_stream_limit(stream)
        assert torch.npu.get_stream_limit(stream) == torch.npu.get_device_limit(0)
    finally:
        torch.npu.set_device_limit(0, *everything.values())


def test_smaller_switches():
    torch.npu.set_deterministic_level(1)
    assert torch.are_deterministic_algorithms_enabled()
    torch.npu.set_deterministic_level(0)
    assert not torch.are_deterministic_algorithms_enabled()
    torch.npu.use_compatible_impl(True)
    torch.npu.set_op_timeout_ms(1000)
    assert torch.npu.get_cann_version() == ""


def test_what_a_switch_does_not_take_is_refused_with_what_it_takes():
    npu = torch.npu
    for error, why, call, *bad in (
        (ValueError, "level must be 0, 1 or 2", npu.set_deterministic_level, 3),
        (ValueError, "level must be 0, 1 or 2", npu.set_task_queue_enable, 3),
        (ValueError, "ms must not be negative", npu.set_op_timeout_ms, -1),
        (RuntimeError, "invalid npu option name", npu.set_option, {"ACL_NOTHING": 1}),
        (TypeError, "option must be a dict", npu.set_option, []),
        (TypeError, "name must be a str", npu.set_option, {1: "x"}),
        (TypeError, "dump_path", npu.set_aoe, 1),
        (RuntimeError, "cube_core_num must be", npu.set_device_limit, 0, 0),
        (RuntimeError, "a float or a Tensor", npu.utils.npu_check_overflow, "1"),
    ):
        with pytest.raises(error, match=why):
            call(*bad)


def test_without_the_task_queue_a_call_raises_its_own_error():
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    torch.npu.set_task_queue_enable(0)
    try:
        with pytest.raises(IndexError):
            torch.nn.functional.embedding(index, weight)
    finally:
        torch.npu.set_task_queue_enable(1)
        torch.npu.clear_error()
    assert torch.npu.get_task_queue_enable() == 1


HELD = """
import torch
stream = torch.npu.Stream()
event = torch.npu.ExternalEvent()
event.wait(stream)
try: {wait}
except RuntimeError as error: print(error)
event.record(torch.npu.Stream())
with torch.npu.stream(stream):
    torch.npu._sleep(10**8)
{other}
print("done")
"""
WAITS = ("torch.npu.synchronize()", "stream.synchronize()")


@pytest.mark.parametrize(
    ("wait", "other", "limit"),
    [
        (*WAITS, {"ACL_DEVICE_SYNC_TIMEOUT": "1"}),
        (*WAITS[::-1], {"ACL_STREAM_TIMEOUT": "20"}),
    ],
)
def test_a_wait_ends_at_its_time_limit_and_the_work_goes_on(python, wait, other, limit):
    code = HELD.format(wait=wait, other=other)
    first, last = python(code, **limit).stdout.splitlines()

    assert next(iter(limit)) in first and "has not come to task" in first
    assert last == "done"


def test_the_environment_chooses_the_level_of_the_queue(python):
    code = """
import threading, torch
level = torch.npu.get_task_queue_enable()
gate = threading.Event()
if level == 0:
    gate.set()  # the call would wait for it
stream = torch.npu.current_stream()
stream.submit(gate.wait)
print(level, stream.query())
gate.set()
"""
    assert python(code, TASK_QUEUE_ENABLE="0").stdout.split() == ["0", "True"]
    off = {"TASK_QUEUE_ENABLE": "2", "NPU_LAUNCH_BLOCKING": "0"}
    assert python(code, **off).stdout.split() == ["2", "False"]


def test_the_environment_chooses_the_size_of_the_pools(python):
    code = """
import torch
print(len({torch.npu.Stream() for _ in range(40)}))
print(len({torch.npu.Stream(priority=-1) for _ in range(40)}))
"""
    assert python(code).stdout.split() == ["32", "32"]
    assert python(code, STREAMS_PER_DEVICE="8").stdout.split() == ["8", "8"]
