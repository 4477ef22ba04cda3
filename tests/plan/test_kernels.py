"""Kernel times that are read from traces: to which operator a kernel belongs, and what
is told of calls that were not measured."""

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from npu_dispatch.plan.kernel_times import KernelTimes, KernelTimesError

Shapes = Sequence[Any]


class Trace:
    """Events as torch.profiler writes them for a CUDA device: one thread, in us."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name"}]
        self.at = 0.0

    def add(self, cat: str, name: str, ts: float, dur: float, **args: Any) -> None:
        where = {"pid": 1, "tid": 2, "ts": ts, "dur": dur}
        named = {key.replace("_", " "): value for key, value in args.items()}
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "args": named, **where}
        )

    def operator(
        self, name: str, dims: Shapes, dtype: str | list[str] = "float", dur: float = 10
    ) -> int:
        """Add a call, which lasts 10 us, and return its External id."""
        number = len(self.events)
        args = {
            "External id": number,
            "Input Dims": dims,
            "Input type": dtype if isinstance(dtype, list) else [dtype] * len(dims),
        }
        self.add("cpu_op", f"aten::{name}", self.at, dur, **args)
        return number

    def kernel(self, us: float, *, of: int | None = None) -> None:
        """Add a kernel, which is of an External id."""
        number = len(self.events)
        self.add("cuda_runtime", "cudaLaunchKernel", self.at, 1, correlation=number)
        args = {"correlation": number} | ({} if of is None else {"External id": of})
        self.add("kernel", "gemm", self.at + 1000, us, **args)

    def call(self, name: str, dims: Shapes, us: float, *dtype: Any) -> None:
        """Add a call of an operator that launches one kernel."""
        self.at += 100
        self.kernel(us, of=self.operator(name, dims, *dtype))

    def text(self) -> str:
        return json.dumps({"schemaVersion": 1, "traceEvents": self.events})


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[Trace], KernelTimes]:
    def load(trace: Trace) -> KernelTimes:
        path = tmp_path / "trace.json"
        path.write_text(trace.text())
        return KernelTimes.load(path)

    return load


def test_a_trace_of_this_device(tmp_path):
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 10)
    ).npu()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(32, 64, device="npu")
    y = torch.zeros(32, dtype=torch.long, device="npu")

    def step() -> None:
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()

    step()  # makes the gradients and fills caches
    activities = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
    with profile(activities=activities, record_shapes=True) as profiler:
        step()
        step()
        torch.npu.synchronize()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))

    # Its times are in the file, next to their operator's id.
    events = json.loads(path.read_text())["traceEvents"]
    calls = {
        e["args"]["External id"]: e["args"]["Input Dims"]
        for e in events
        if e["name"] == "aten::mm" and e["cat"] == "cpu_op"
    }
    a, b = [10, 32], [32, 128]
    took = [
        e["dur"] * 1e3
        for e in events
        if e.get("cat") == "kernel" and calls.get(e["args"]["External id"]) == [a, b]
    ]
    times = KernelTimes.load(path)
    assert len(took) == 2
    told = times.ns("aten::mm", [a, b, [10, 128]], "torch.float32")
    assert told == (pytest.approx(sum(took) / 2), True)
    assert times.ns("aten::_foreach_add_.List", [[128, 64]], "float32") is None
    weights = [[128, 64], [128], [10, 128], [10]]
    assert times.ns("aten::_foreach_add_.List", weights * 2, "float32")


# Measured calls with their us, and what is told of others, in ns. A type is "float"
# where a call is measured and "float32" where it is asked for, unless one is named; "."
# is a tensor of no dimension.
CASES = """
# of several calls the median
relu 8x8 = 5
relu 8x8 = 9
relu 8x8 = 6
relu 8x8 8x8 -> 6000
# variants are one operator
add_ 8x8 8x8 . = 5
mm 4x8 8x4 4x4 = 6
add 8x8 8x8 8x8 -> 5000
add_ 8x8 8x8 8x8 -> 5000
aten::add.Tensor 8x8 8x8 8x8 -> 5000
aten::add_.Tensor 8x8 8x8 8x8 -> 5000
add.out 8x8 8x8 8x8 -> 5000
aten::mm 4x8 8x4 4x4 -> 6000
aten::sub 8x8 8x8 8x8 -> nothing
# the result is no input: the number of tensors tells x + 1 and x + y apart
add 8x8 . = 2
add 8x8 8x8 = 3
add 8x8 8x8 -> 2000
add 8x8 8x8 8x8 -> 3000
add_ 8x8 8x8 -> 3000
# tensors of no dimension do not count
nll_loss_backward . 32x10 32 = 2
fill_ . . = 1
nll_loss_backward . 32x10 32 . 32x10 -> 2000
fill_ . -> 1000
fill_ 8 -> nothing
# types are apart
relu 8 = 2
relu 8 = 1 c10::BFloat16
relu 8 -> 2000
relu 8 -> 1000 torch.bfloat16
relu 8 -> nothing float16
# the first floating tensor tells the type
where . 8 8x8 8x8 = 2 double bool c10::Half float
where 8 8x8 8x8 -> 2000 float16
# lists are told for each type, but for long ones
cat 8x8,8x8 = 2 TensorList
_foreach_neg . = 5 TensorList
cat 8x8 8x8 16x8 -> 2000 float16
_foreach_neg . -> nothing
# between and outside of measured calls
relu 1000 = 2
relu 4000 = 4
add 1000 1000 = 9
tanh 1000 = 2
relu 2000 -> 2828.4271
relu 40x50 -> 2828.4271
relu 8000 -> 5656.8542
relu 500 -> 1414.2136
relu 8001 -> nothing
relu 499 -> nothing
relu 0 -> nothing
tanh 1100 -> nothing
# beyond measured sizes it does not fall, or grow faster than the work
relu 1000 = 4
relu 2000 = 3
tanh 1000 = 1
tanh 2000 = 3
relu 4000 -> 3000
tanh 4000 -> 6000
# lists of any length
_fused_sgd_ 8,8 = 2
_fused_sgd_ 8,8,8,8 = 4
_fused_sgd_ 8 8 8 -> 3000
# other devices have other names
_scaled_dot_product_cudnn_attention 1x2x64x8 1x2x64x8 1x2x64x8 = 2
_scaled_dot_product_efficient_attention_backward QQQQ 64 2 = 3
cudnn_batch_norm 2x4x8x8 4 4 4 4 = 4
FLASH_for_cpu QQQQ 1x2x64 -> 2000
FLASH_for_cpu_backward QQQQ Q Q -> 3000
native_batch_norm 2x4x8x8 4 4 4 4 2x4x8x8 -> 4000
# what no trace tells
relu 8 = 1
index 8x8 . = 1
index 8x8 4 4x8 -> nothing
# work of a product is multiplications
mm 64x64 64x64 = 2
mm 256x64 64x64 = 8
mm 64x64 64x128 -> 4000
addmm 64 64x64 64x64 = 2
addmm 64 256x64 64x64 = 8
addmm 32 64x128 128x64 -> 4000
# work of a convolution is multiplications
convolution 1x64x8x8 64x64x3x3 = 2
convolution 4x64x8x8 64x64x3x3 = 8
convolution 2x32x8x8 128x32x3x3 -> 4000
convolution_backward 1x64x8x8 1x64x8x8 64x64x3x3 = 2
convolution_backward 4x64x8x8 4x64x8x8 64x64x3x3 = 8
convolution_backward 2x128x8x8 2x32x8x8 128x32x3x3 -> 4000
# and their sizes are in the result, where it is known; one gradient is half the work
convolution 1x64x8x8 64x64x3x3 = 2
convolution 4x64x8x8 64x64x3x3 = 8
convolution 1x64x16x16 64x64x3x3 1x64x8x8 -> 2000
convolution_backward 1x64x8x8 1x64x8x8 64x64x3x3 = 2
convolution_backward 4x64x8x8 4x64x8x8 64x64x3x3 = 8
convolution_backward 2x64x8x8 2x64x8x8 64x64x3x3 64x64x3x3 -> 2000
# those of a group and of many are apart
convolution 1x64x8x8 64x64x3x3 = 2
convolution 4x64x8x8 64x64x3x3 = 8
convolution 1x64x8x8 64x1x3x3 -> nothing
# work of attention is multiplications
FLASH Q Q Q = 2
FLASH 4x2x64x8 4x2x64x8 4x2x64x8 = 8
FLASH Q 1x2x128x8 1x2x128x8 -> 4000
FLASH_backward QQQQ = 2
FLASH_backward 4x2x64x8 4x2x64x8 4x2x64x8 4x2x64x8 = 8
FLASH_backward Q Q 1x2x128x8 1x2x128x8 -> 4000
"""
NAMES = {
    "FLASH": "_scaled_dot_product_flash_attention",
    "QQQQ": "Q Q Q Q",
    "Q": "1x2x64x8",
}


def shape(word: str) -> Shapes:
    if "," in word:
        return [shape(one) for one in word.split(",")]
    return [] if word == "." else [int(n) for n in word.split("x")]


@pytest.mark.parametrize("case", CASES.split("# ")[1:], ids=lambda case: case[:30])
def test_what_is_told_of_calls(loaded, case: str):
    for name, meaning in NAMES.items():
        case = case.replace(name, meaning)
    trace, told = Trace(), []
    for line in case.splitlines()[1:]:
        name, *words = line.split()
        at = words.index("=" if "=" in words else "->")
        shapes, (figure, *types) = [*map(shape, words[:at])], words[at + 1 :]
        if words[at] == "=":
            dtype = types if types[1:] else "".join(types) or "float"
            trace.call(name, shapes, float(figure), dtype)
        else:
            told.append((line, name, shapes, figure, types or ["float32"]))
    times = loaded(trace)
    for line, name, shapes, figure, types in told:
        wanted = None if figure == "nothing" else pytest.approx(float(figure))
        told_ns = times.ns(name, shapes, *types)
        assert (told_ns and told_ns.ns) == wanted, line


def test_a_call_has_the_sum_of_its_kernels(loaded):
    trace = Trace()
    number = trace.operator("sum", [[8, 8], []])
    trace.kernel(2, of=number)
    trace.kernel(3, of=number)
    assert loaded(trace).ns("sum", [[8, 8]], "float32") == (5000, True)


def test_the_innermost_operator_has_launched_a_kernel(loaded):
    trace = Trace()
    trace.at = 100
    trace.operator("linear", [[4, 8], [2, 8], [2]], dur=50)
    trace.at = 110
    trace.operator("t", [[2, 8]])
    trace.at = 130
    addmm = trace.operator("addmm", [[2], [4, 8], [8, 2]])
    trace.kernel(7, of=addmm)
    times = loaded(trace)
    assert times.ns("aten::addmm", [[2], [4, 8], [8, 2], [4, 2]], "float32") == (
        7000,
        True,
    )
    # Where it is one task, what it calls counts for it.
    assert times.ns("aten::linear", [[4, 8], [2, 8], [2]], "float32") == (7000, True)
    assert times.ns("aten::t", [[2, 8]], "float32") is None


def test_an_id_of_what_is_no_operator(loaded):
    trace = Trace()
    trace.operator("relu", [[8]], dur=50)
    trace.at = 10
    number = len(trace.events)
    trace.add("cpu_op", "library::part", 10, 5, **{"External id": number})
    trace.kernel(7, of=number)
    trace.at = 90
    number = len(trace.events)
    trace.add("user_annotation", "mine", 90, 5, **{"External id": number})
    trace.kernel(21, of=number)
    times = loaded(trace)
    assert times.ns("relu", [[8]], "float32") == (7000, True)


def test_threads_are_apart(loaded):
    trace = Trace()
    trace.call("relu", [[8]], 5)
    trace.operator("tanh", [[8]])
    trace.events[-1]["tid"] = 3
    trace.kernel(9, of=len(trace.events) - 1)
    times = loaded(trace)
    assert times.ns("relu", [[8]], "float32") == (5000, True)
    assert times.ns("tanh", [[8]], "float32") == (9000, True)


def test_copies_over_the_link_are_no_kernels(loaded):
    trace = Trace()
    trace.call("copy_", [[8], [8]], 5)
    for name in ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)"):
        trace.at += 100
        number = trace.operator("copy_", [[9], [9]])
        trace.add("gpu_memcpy", name, 0, 4, **{"External id": number})
    times = loaded(trace)
    assert times.ns("copy_", [[8], [8]], "float32") == (5000, True)
    assert times.ns("copy_", [[9], [9]], "float32") == (4000, True)


def refused(path: Path) -> str:
    with pytest.raises(KernelTimesError) as error:
        KernelTimes.load(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_files_of_other_kinds(tmp_path):
    path = tmp_path / "file"
    assert "cannot be read" in refused(path)
    path.write_bytes(b"SQLite format 3\0")
    assert "expected a trace of torch.profiler" in refused(path)
    trace = Trace()
    trace.call("relu", [[8]], 5)
    path.write_bytes(gzip.compress(trace.text().encode()))
    assert KernelTimes.load(path).ns("relu", [[8]], "float32") == (5000, True)
    path.write_bytes(gzip.compress(trace.text().encode())[:50])
    assert "cannot be read as JSON" in refused(path)
    path.write_text('{"a": 1}')
    assert 'without a list "traceEvents"' in refused(path)
    path.write_text('{"traceEvents": [1]}')
    assert "found an event that torch.profiler does not write" in refused(path)


def test_traces_that_lack_something(tmp_path):
    path = tmp_path / "trace.json"
    trace = Trace()
    number = trace.operator("relu", [[8]])
    path.write_text(trace.text())
    assert "found no kernels" in refused(path)
    trace.kernel(5)
    path.write_text(trace.text())
    assert "no kernel that an operator with shapes launched" in refused(path)
    trace.kernel(5, of=number)
    path.write_text(trace.text())
    assert KernelTimes.load(path).ns("relu", [[8]], "float32") == (5000, True)
    del trace.events[number]["args"]["Input Dims"]
    path.write_text(trace.text())
    assert "record_shapes=True" in refused(path)
