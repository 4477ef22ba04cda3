"""Kernel times that are read from traces: to which operator a kernel belongs, and what
is told of calls that were not measured."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from npu_dispatch.plan.kernels.times import How, KernelTimes, KernelTimesError

SMALL = Path(__file__).parent / "data" / "kernels-small.json"

Shapes = Sequence[Sequence[int]]


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
        self, name: str, dims: Sequence[Any], dtype: str = "float", dur: float = 10
    ) -> int:
        """Add a call, which lasts 10 us, and return its External id."""
        number = len(self.events)
        args = {
            "External id": number,
            "Input Dims": dims,
            "Input type": [dtype] * len(dims),
        }
        self.add("cpu_op", name, self.at, dur, **args)
        return number

    def kernel(self, us: float, *, of: int | None = None, at: float = 0.0) -> None:
        """Add a kernel that is of an External id, or was launched at a time."""
        number = len(self.events)
        self.add("cuda_runtime", "cudaLaunchKernel", at, 1, correlation=number)
        args = {"correlation": number} | ({} if of is None else {"External id": of})
        self.add("kernel", "gemm", self.at + 1000, us, **args)

    def call(self, name: str, dims: Sequence[Any], us: float, **of: Any) -> None:
        """Add a call of an operator that launches one kernel."""
        self.at += 100
        self.kernel(us, of=self.operator(name, dims, **of))

    def text(self) -> str:
        return json.dumps({"schemaVersion": 1, "traceEvents": self.events})


@pytest.fixture
def loaded(tmp_path: Path) -> Callable[[Trace], KernelTimes]:
    def load(trace: Trace) -> KernelTimes:
        path = tmp_path / "trace.json"
        path.write_text(trace.text())
        return KernelTimes.load(path)

    return load


def test_a_trace_of_this_device():
    # Two steps were recorded. The times are in the file, next to their operator's id.
    events = json.loads(SMALL.read_text())["traceEvents"]
    calls = {
        e["args"]["External id"]: e["args"]["Input Dims"]
        for e in events
        if e["name"] == "aten::mm" and e["cat"] == "cpu_op"
    }
    a, b = [10, 32], [32, 128]
    took = [
        e["dur"] * 1e3
        for e in events
        if e["cat"] == "kernel" and calls.get(e["args"]["External id"]) == [a, b]
    ]
    times = KernelTimes.load(SMALL)
    assert len(took) == 2
    measured = times.measured("aten::mm", [a, b, [10, 128]], "torch.float32")
    assert measured.how is How.EXACT
    assert measured.ns == pytest.approx(sum(took) / 2)
    assert times.attributed == 1
    assert times.ns("aten::_foreach_add_.List", [[128, 64]], "float32") is None
    weights = [[128, 64], [128], [10, 128], [10]]
    assert times.ns("aten::_foreach_add_.List", weights * 2, "float32")


def test_of_several_calls_the_median(loaded):
    trace = Trace()
    for us in (5, 9, 6):
        trace.call("aten::relu", [[8, 8]], us)
    times = loaded(trace)
    assert times.measured("relu", [[8, 8], [8, 8]], "float32").how is How.EXACT
    assert times.ns("relu", [[8, 8], [8, 8]], "float32") == 6000


def test_a_call_has_the_sum_of_its_kernels(loaded):
    trace = Trace()
    number = trace.operator("aten::sum", [[8, 8], []])
    trace.kernel(2, of=number)
    trace.kernel(3, of=number)
    assert loaded(trace).ns("sum", [[8, 8]], "float32") == 5000


@pytest.mark.parametrize("by_id", [True, False])
def test_the_innermost_operator_has_launched_a_kernel(loaded, by_id):
    trace = Trace()
    trace.at = 100
    trace.operator("aten::linear", [[4, 8], [2, 8], [2]], dur=50)
    trace.at = 110
    trace.operator("aten::t", [[2, 8]])
    trace.at = 130
    addmm = trace.operator("aten::addmm", [[2], [4, 8], [8, 2]])
    trace.kernel(7, of=addmm if by_id else None, at=135)
    times = loaded(trace)
    assert times.ns("aten::addmm", [[2], [4, 8], [8, 2], [4, 2]], "float32") == 7000
    # Where it is one task, what it calls counts for it.
    assert times.ns("aten::linear", [[4, 8], [2, 8], [2]], "float32") == 7000
    assert times.ns("aten::t", [[2, 8]], "float32") is None


def test_an_id_of_what_is_no_operator(loaded):
    trace = Trace()
    trace.operator("aten::relu", [[8]], dur=50)
    trace.at = 10
    number = len(trace.events)
    trace.add("cpu_op", "library::part", 10, 5, **{"External id": number})
    trace.kernel(7, of=number)
    trace.at = 90
    number = len(trace.events)
    trace.add("user_annotation", "mine", 90, 5, **{"External id": number})
    trace.kernel(21, of=number)
    times = loaded(trace)
    assert times.ns("relu", [[8]], "float32") == 7000
    assert times.attributed == pytest.approx(0.25)


def test_old_profilers_repeat_the_correlation(loaded):
    trace = Trace()
    trace.operator("aten::relu", [[8]])
    trace.at = 20
    trace.operator("aten::tanh", [[8]])
    trace.kernel(7, at=30)  # at the end of its operator, in whole microseconds
    trace.kernel(7, at=10)
    args = trace.events[-1]["args"]
    args["External id"] = args["correlation"]
    trace.at = 40
    trace.operator("aten::exp", [[8]])
    trace.events[-1]["args"]["External id"] = args["correlation"]  # by chance
    times = loaded(trace)
    assert times.ns("relu", [[8]], "float32") == 7000
    assert times.ns("tanh", [[8]], "float32") == 7000
    assert times.ns("exp", [[8]], "float32") is None


def test_threads_are_apart(loaded):
    trace = Trace()
    trace.call("aten::relu", [[8]], 5)
    trace.operator("aten::tanh", [[8]])
    trace.events[-1]["tid"] = 3
    trace.kernel(9, at=trace.at + 5)
    times = loaded(trace)
    assert times.ns("relu", [[8]], "float32") == 14000
    assert times.ns("tanh", [[8]], "float32") is None


def test_copies_over_the_link_are_no_kernels(loaded):
    trace = Trace()
    trace.call("aten::copy_", [[8], [8]], 5)
    for name in ("Memcpy HtoD (Pinned -> Device)", "Memcpy DtoD (Device -> Device)"):
        trace.at += 100
        number = trace.operator("aten::copy_", [[9], [9]])
        trace.add("gpu_memcpy", name, 0, 4, **{"External id": number})
    times = loaded(trace)
    assert times.ns("copy_", [[8], [8]], "float32") == 5000
    assert times.ns("copy_", [[9], [9]], "float32") == 4000


def test_variants_are_one_operator(loaded):
    trace = Trace()
    trace.call("aten::add_", [[8, 8], [8, 8], []], 5)
    trace.call("aten::mm", [[4, 8], [8, 4], [4, 4]], 6)
    times = loaded(trace)
    for name in ("add", "add_", "aten::add.Tensor", "aten::add_.Tensor", "add.out"):
        assert times.ns(name, [[8, 8]] * 3, "float32") == 5000, name
    assert times.ns("aten::mm", [[4, 8], [8, 4], [4, 4]], "float32") == 6000
    assert times.ns("aten::sub", [[8, 8]] * 3, "float32") is None


def test_the_result_is_no_input(loaded):
    # x + 1 and x + y begin alike: only the number of tensors tells them apart.
    trace = Trace()
    trace.call("aten::add", [[8, 8], []], 2)
    trace.call("aten::add", [[8, 8], [8, 8]], 3)
    times = loaded(trace)
    assert times.ns("add", [[8, 8]] * 2, "float32") == 2000
    assert times.ns("add", [[8, 8]] * 3, "float32") == 3000
    assert times.ns("add_", [[8, 8]] * 2, "float32") == 3000


def test_tensors_of_no_dimension_do_not_count(loaded):
    trace = Trace()
    trace.call("aten::nll_loss_backward", [[], [32, 10], [32]], 2)
    trace.call("aten::fill_", [[], []], 1)
    times = loaded(trace)
    shapes = [[], [32, 10], [32], [], [32, 10]]
    assert times.ns("nll_loss_backward", shapes, "float32") == 2000
    assert times.ns("fill_", [[]], "float32") == 1000
    assert times.ns("fill_", [[8]], "float32") is None


def test_types_are_apart(loaded):
    trace = Trace()
    trace.call("aten::relu", [[8]], 2, dtype="float")
    trace.call("aten::relu", [[8]], 1, dtype="c10::BFloat16")
    times = loaded(trace)
    assert times.ns("relu", [[8]], "float32") == 2000
    assert times.ns("relu", [[8]], "torch.bfloat16") == 1000
    assert times.ns("relu", [[8]], "BFloat16") == 1000
    assert times.ns("relu", [[8]], "float16") is None


def test_the_first_floating_tensor_tells_the_type(loaded):
    trace = Trace()
    trace.call("aten::where", [[], [8], [8, 8], [8, 8]], 2)
    types = ["double", "bool", "c10::Half", "float"]
    trace.events[-3]["args"]["Input type"] = types
    assert loaded(trace).ns("where", [[8], [8, 8], [8, 8]], "float16") == 2000


def test_lists_are_told_for_each_type(loaded):
    trace = Trace()
    trace.call("aten::cat", [[[8, 8], [8, 8]]], 2, dtype="TensorList")
    trace.call("aten::_foreach_neg", [[]], 5, dtype="TensorList")  # a long list
    times = loaded(trace)
    assert times.ns("cat", [[8, 8], [8, 8], [16, 8]], "float16") == 2000
    assert times.ns("_foreach_neg", [[]], "float16") is None


def test_between_measured_calls(loaded):
    trace = Trace()
    trace.call("aten::relu", [[1000]], 2)
    trace.call("aten::relu", [[4000]], 4)
    trace.call("aten::relu", [[10, 10]], 50)
    times = loaded(trace)
    between = times.measured("relu", [[2000]], "float32")
    assert between.how is How.INTERPOLATED
    assert between.ns == pytest.approx(2000 * 2**0.5)


def test_outside_of_measured_calls(loaded):
    trace = Trace()
    trace.call("aten::relu", [[1000]], 2)
    trace.call("aten::relu", [[4000]], 4)
    trace.call("aten::tanh", [[1000]], 2)
    times = loaded(trace)
    assert times.ns("relu", [[8000]], "float32") == pytest.approx(4000 * 2**0.5)
    assert times.ns("relu", [[500]], "float32") == pytest.approx(2000 / 2**0.5)
    for n in (8001, 499, 0):
        measured = times.measured("relu", [[n]], "float32")
        assert (measured.ns, measured.how) == (None, How.MISSING)
    # One amount of work does not say how the time grows with it.
    assert times.ns("tanh", [[1100]], "float32") is None
    # Not for other numbers of dimensions.
    assert times.ns("relu", [[40, 50]], "float32") is None


@pytest.mark.parametrize(
    ("name", "small", "large", "half_way"),
    [
        ("mm", [[64, 64], [64, 64]], [[256, 64], [64, 64]], [[64, 64], [64, 128]]),
        (
            "addmm",
            [[64], [64, 64], [64, 64]],
            [[64], [256, 64], [64, 64]],
            [[32], [64, 128], [128, 64]],
        ),
        (
            "convolution",
            [[1, 64, 8, 8], [64, 64, 3, 3]],
            [[4, 64, 8, 8], [64, 64, 3, 3]],
            [[1, 32, 8, 8], [256, 32, 3, 3]],
        ),
        (
            "convolution_backward",
            [[1, 64, 8, 8], [1, 64, 8, 8], [64, 64, 3, 3]],
            [[4, 64, 8, 8], [4, 64, 8, 8], [64, 64, 3, 3]],
            [[1, 256, 8, 8], [1, 32, 8, 8], [256, 32, 3, 3]],
        ),
        (
            "_scaled_dot_product_flash_attention",
            [[1, 2, 64, 8]] * 3,
            [[4, 2, 64, 8]] * 3,
            [[1, 2, 64, 8], [1, 2, 128, 8], [1, 2, 128, 8]],
        ),
        (
            "_scaled_dot_product_flash_attention_backward",
            [[1, 2, 64, 8]] * 4,
            [[4, 2, 64, 8]] * 4,
            [[1, 2, 64, 8], [1, 2, 64, 8], [1, 2, 128, 8], [1, 2, 128, 8]],
        ),
    ],
)
def test_work_is_multiplications(loaded, name, small, large, half_way):
    trace = Trace()
    trace.call(f"aten::{name}", small, 2)
    trace.call(f"aten::{name}", large, 8)
    assert loaded(trace).ns(name, half_way, "float32") == pytest.approx(4000)


def test_other_devices_have_other_names(loaded):
    trace = Trace()
    q, noise = [1, 2, 64, 8], [[64], [2]]
    trace.call("aten::_scaled_dot_product_cudnn_attention", [q, q, q], 2)
    backward = "aten::_scaled_dot_product_efficient_attention_backward"
    trace.call(backward, [q, q, q, q, *noise], 3)
    trace.call("aten::cudnn_batch_norm", [[2, 4, 8, 8], [4], [4], [4], [4]], 4)
    times = loaded(trace)
    ours = "aten::_scaled_dot_product_flash_attention_for_cpu"
    assert times.ns(ours, [q, q, q, q, [1, 2, 64]], "float32") == 2000
    assert times.ns(f"{ours}_backward", [q] * 6, "float32") == 3000
    shapes = [[2, 4, 8, 8], [4], [4], [4], [4], [2, 4, 8, 8]]
    assert times.ns("native_batch_norm", shapes, "float32") == 4000


def test_what_no_trace_tells(loaded):
    trace = Trace()
    trace.call("aten::relu", [[8]], 1)
    trace.call("aten::index", [[8, 8], []], 1)
    assert loaded(trace).ns("index", [[8, 8], [4], [4, 8]], "float32") is None


def test_compressed(tmp_path):
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(SMALL.read_bytes()))
    shapes = [[10, 32], [32, 128]]
    found = KernelTimes.load(path).ns("mm", shapes, "float32")
    assert found == KernelTimes.load(SMALL).ns("mm", shapes, "float32")


# The columns that are read, of the tables that Nsight Systems documents.
TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (
    start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL, text TEXT,
    globalTid INTEGER, textId INTEGER
);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (
    start INTEGER NOT NULL, end INTEGER NOT NULL, globalTid INTEGER,
    correlationId INTEGER, nameId INTEGER NOT NULL
);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
    start INTEGER NOT NULL, end INTEGER NOT NULL, deviceId INTEGER NOT NULL,
    streamId INTEGER NOT NULL, correlationId INTEGER, globalPid INTEGER,
    shortName INTEGER NOT NULL
);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (
    start INTEGER NOT NULL, end INTEGER NOT NULL, correlationId INTEGER,
    globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL
);
"""
ADDMM = (
    "aten::addmm, seq = 1, op_id = 9, sizes = [[2], [4, 8], [8, 2], [], []], "
    "input_op_ids = [[3,0]]"
)
PROCESS = 7 << 24
THREAD = PROCESS | 5


def nsight(path: Path, ranges: Sequence[tuple[int, int, str]]) -> sqlite3.Connection:
    """Write a report with NVTX ranges of one thread."""
    db = sqlite3.connect(path)
    db.executescript(TABLES)
    for begun, ended, text in ranges:
        row = (begun, ended, 59, text, THREAD, None)
        db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
    return db


def launch(
    db: sqlite3.Connection, number: int, at: int, ns: int, process: int = PROCESS
) -> None:
    """Add a kernel and the call of the runtime that launched it."""
    row = (at, at + 5, process | 5, number, 1)
    db.execute("INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)", row)
    kernel = (9000, 9000 + ns, 0, 7, number, process, 2)
    sql = "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, ?, ?, ?, ?)"
    db.execute(sql, kernel)


def test_nsight(tmp_path):
    path = tmp_path / "report.sqlite"
    db = nsight(
        path,
        [
            (0, 1000, "step 1"),
            (100, 300, "aten::linear, seq = 1, sizes = [[4, 8], [2, 8], [2]]"),
            (150, 250, ADDMM),
            (400, 500, "aten::relu, sizes = [[4, 2]]"),
            (600, 700, "aten::copy_, sizes = [[4, 2], [4, 2], []]"),
        ],
    )
    db.execute("INSERT INTO StringIds VALUES (3, 'aten::tanh, sizes = [[4, 2]]')")
    row = (800, 900, 59, None, THREAD, 3)
    db.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, ?, ?, ?)", row)
    launch(db, 1, 160, 70)
    launch(db, 2, 200, 7)
    launch(db, 3, 450, 20)
    launch(db, 3, 160, 500, process=8 << 24)  # of another process
    launch(db, 4, 850, 30)
    for number, kind in ((5, 1), (6, 8)):  # from the host, and on the device
        row = (650, 655, THREAD, number, 1)
        sql = "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, ?)"
        db.execute(sql, row)
        copy = (9000, 9040 + number, number, PROCESS, 32, kind)
        sql = "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, ?, ?, ?)"
        db.execute(sql, copy)
    db.commit()
    db.close()
    times = KernelTimes.load(path)
    addmm = times.measured("addmm", [[2], [4, 8], [8, 2], [4, 2]], "float32")
    assert (addmm.ns, addmm.how) == (77, How.EXACT)
    assert times.ns("linear", [[4, 8], [2, 8], [2]], "bfloat16") == 77
    assert times.ns("relu", [[4, 2], [4, 2]], "float32") == 20
    assert times.ns("tanh", [[4, 2], [4, 2]], "float32") == 30
    assert times.ns("copy_", [[4, 2], [4, 2]], "float32") == 46
    assert times.attributed == pytest.approx(173 / 673)


def refused(path: Path) -> str:
    with pytest.raises(KernelTimesError) as error:
        KernelTimes.load(path)
    assert str(path) in str(error.value)
    return str(error.value)


def test_a_report_without_ranges(tmp_path):
    path = tmp_path / "report.sqlite"
    db = nsight(path, [(0, 100, "aten::mm, seq = 3")])
    launch(db, 1, 50, 70)
    db.commit()
    assert "emit_nvtx(record_shapes=True)" in refused(path)
    db.execute("DROP TABLE NVTX_EVENTS")
    db.commit()
    assert "found no table NVTX_EVENTS" in refused(path)
    db.execute("CREATE TABLE NVTX_EVENTS (start INTEGER)")
    db.commit()
    db.close()
    assert "no such column" in refused(path)


def test_files_of_other_kinds(tmp_path):
    path = tmp_path / "file"
    assert "cannot be read" in refused(path)
    path.write_bytes(b"\x00\x01NSYS")
    assert "nsys export --type sqlite" in refused(path)
    path.write_bytes(gzip.compress(SMALL.read_bytes())[:1000])
    assert "found neither JSON nor SQLite" in refused(path)
    path.write_text('{"a": 1}')
    assert 'without a list "traceEvents"' in refused(path)
    path.write_text('{"traceEvents": [1]}')
    assert "found an event that torch.profiler does not write" in refused(path)


def test_traces_that_lack_something(tmp_path):
    path = tmp_path / "trace.json"
    trace = Trace()
    number = trace.operator("aten::relu", [[8]])
    path.write_text(trace.text())
    assert "found no kernels" in refused(path)
    trace.kernel(5, at=500)
    path.write_text(trace.text())
    assert "no kernel that an operator with shapes launched" in refused(path)
    trace.kernel(5, of=number)
    path.write_text(trace.text())
    assert KernelTimes.load(path).ns("relu", [[8]], "float32") == 5000
    del trace.events[number]["args"]["Input Dims"]
    path.write_text(trace.text())
    assert "record_shapes=True" in refused(path)
