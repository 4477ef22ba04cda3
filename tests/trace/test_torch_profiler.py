"""torch.profiler and torch.autograd.profiler on npu, against what was run."""

import itertools
import json
import time
from collections import Counter

import pytest
import torch
from held_stream import held_stream
from torch._C._profiler import ProfilerConfig, ProfilerState, _ExperimentalConfig
from torch.autograd import DeviceType, profiler
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from tests.graphs.captured import captured

BOTH = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]
ROUNDS = 20


def on_device(events):
    return [e for e in events if e.device_type == DeviceType.PrivateUse1]


def kernels(events):
    return [e for e in on_device(events) if not e.is_user_annotation]


def cpu_rows(p):
    return {e.key: e for e in p.key_averages() if e.device_type == DeviceType.CPU}


def warm():
    """Operands of operators that have run before."""
    x = torch.rand(64, 64, device="npu")
    for _ in range(2):  # what the first call of an operator runs besides
        (x @ x).relu_()
        torch.add(x, 1)
    torch.npu.synchronize()
    return x


@pytest.fixture
def exported(tmp_path):
    """The events of the Chrome trace of a profile."""

    def read(p):
        path = tmp_path / "trace.json"
        p.export_chrome_trace(str(path))
        return json.loads(path.read_text())["traceEvents"]

    return read


def test_every_kernel_is_there_once_with_its_operator():
    x = warm()
    with profile(activities=BOTH) as p:
        for _ in range(ROUNDS):
            y = x @ x
            y.relu_()

    found = Counter(e.name for e in kernels(p.events()))
    assert found == {"aten::mm": ROUNDS, "aten::relu_": ROUNDS}
    rows = cpu_rows(p)
    for name in ("aten::mm", "aten::relu_"):
        assert rows[name].count == ROUNDS
        assert rows[name].self_device_time_total > 0
    assert rows["aten::matmul"].self_device_time_total == 0
    assert rows["aten::matmul"].device_time_total == pytest.approx(
        rows["aten::mm"].self_device_time_total
    )


def test_the_operators_have_the_names_that_they_have_on_cpu():
    x = warm()

    def step(x):
        torch.nn.functional.gelu(torch.add(x, 1)).sum()

    host = x.cpu()
    step(x)
    with profile(activities=[ProfilerActivity.CPU]) as on_cpu:
        step(host)
    with profile(activities=BOTH) as on_npu:
        step(x)

    expected = {e.key for e in on_cpu.key_averages()}
    used = {
        e.key
        for e in on_npu.key_averages()
        if e.device_type == DeviceType.CPU and e.self_device_time_total > 0
    }
    assert used == {"aten::add", "aten::gelu", "aten::sum"}
    assert used <= expected


def test_the_device_times_lie_within_the_wall_time_and_do_not_overlap():
    x = warm()
    began = time.perf_counter_ns()
    with profile(activities=BOTH) as p:
        for _ in range(ROUNDS):
            x @ x
    wall_us = (time.perf_counter_ns() - began) / 1e3

    found = sorted(kernels(p.events()), key=lambda e: e.time_range.start)
    assert sum(e.time_range.elapsed_us() for e in found) < wall_us
    # The export's times are nanoseconds as decimal microseconds.
    for one, other in itertools.pairwise(found):
        assert one.time_range.end <= other.time_range.start + 0.002
    table = p.key_averages().table(sort_by="self_device_time_total")
    assert "Self NPU time total" in table
    assert table.splitlines()[3].split()[0] in {"aten::mm"}


def test_a_kernel_starts_after_its_launch_and_an_arrow_joins_them(exported):
    x = warm()
    with profile(activities=BOTH) as p:
        for _ in range(ROUNDS):
            torch.add(x, 1)

    events = exported(p)
    launches = {
        e["args"]["correlation"]: e for e in events if e.get("name") == "npuLaunch"
    }
    ran = [e for e in events if e.get("cat") == "kernel"]
    assert len(ran) == len(launches) == ROUNDS
    arrows = Counter((e["id"], e["ph"]) for e in events if e.get("cat") == "ac2g")
    for e in ran:
        number = e["args"]["correlation"]
        assert e["ts"] >= launches[number]["ts"]
        assert arrows[number, "s"] == arrows[number, "f"] == 1
        assert (e["pid"], e["tid"]) == (0, torch.npu.current_stream().stream_id)
    # Each belongs to its operator, in the program's order. torch reads another
    # clock for operators than we for launches: their times are not compared.
    operators = sorted(
        (e for e in events if e.get("name") == "aten::add"), key=lambda e: e["ts"]
    )
    in_order = sorted(launches.values(), key=lambda e: e["ts"])
    assert len(operators) == ROUNDS
    for op, launch in zip(operators, in_order, strict=True):
        assert launch["args"]["External id"] == op["args"]["External id"]
        assert launch["tid"] == op["tid"]
    for e in ran:
        launch = launches[e["args"]["correlation"]]
        assert e["args"]["External id"] == launch["args"]["External id"]


def test_streams_have_rows_of_their_own(exported):
    x = warm()
    streams = [torch.npu.Stream() for _ in range(2)]
    with profile(activities=BOTH) as p:
        for stream in streams:
            with torch.npu.stream(stream):
                x @ x

    rows = {e["tid"] for e in exported(p) if e.get("cat") == "kernel"}
    assert rows == {stream.stream_id for stream in streams}


def test_copies_are_named_by_their_direction():
    x = warm()
    with profile(activities=BOTH) as p:
        x.copy_(torch.zeros(64, 64))
        x.cpu()

    found = Counter(e.name for e in kernels(p.events()))
    assert found == {"Memcpy HtoD": 1, "Memcpy DtoH": 1}


def test_a_users_range_spans_its_kernels_on_the_device():
    x = warm()
    with profile(activities=BOTH) as p:
        with record_function("outer"):
            torch.add(x, 1)
            with record_function("inner"):
                torch.add(x, 1)
            torch.add(x, 1)
        torch.add(x, 1)

    found = {
        e.name: e.time_range for e in on_device(p.events()) if e.is_user_annotation
    }
    ran = sorted((e.time_range for e in kernels(p.events())), key=lambda r: r.start)
    assert len(ran) == 4
    assert found.keys() == {"outer", "inner"}
    rows = cpu_rows(p)
    whole = sum(r.elapsed_us() for r in ran[:3])
    assert rows["outer"].device_time_total == pytest.approx(whole)
    assert (found["outer"].start, found["outer"].end) == (ran[0].start, ran[2].end)
    assert (found["inner"].start, found["inner"].end) == (ran[1].start, ran[1].end)


def test_backward_is_attributed_to_its_operators():
    x = warm()
    w = torch.rand(64, 64, device="npu", requires_grad=True)
    (x @ w).sum().backward()
    with profile(activities=BOTH, record_shapes=True) as p:
        (x @ w).sum().backward()

    rows = [
        e
        for e in p.key_averages(group_by_input_shape=True)
        if e.key == "aten::mm" and e.device_type == DeviceType.CPU
    ]
    assert [(e.input_shapes, e.count) for e in rows] == [([[64, 64], [64, 64]], 2)]
    assert rows[0].self_device_time_total > 0
    backward = [e for e in p.key_averages() if e.key.endswith("MmBackward0")]
    assert all(e.device_time_total > 0 for e in backward)
    assert backward


def test_a_schedule_profiles_its_active_steps_only():
    x = warm()
    seen = []

    def ready(p):
        seen.append(Counter(e.name for e in kernels(p.events())))

    with profile(
        activities=BOTH,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=ready,
    ) as p:
        for step in range(8):
            for _ in range(step + 1):
                torch.add(x, 1)
            p.step()

    assert seen == [{"aten::add.Tensor": 3 + 4}, {"aten::add.Tensor": 7 + 8}]


def test_the_nodes_of_a_replayed_graph_are_there():
    x = warm()
    graph, y = captured(lambda: (x @ x).relu())
    graph.replay()
    torch.npu.synchronize()
    with profile(activities=BOTH) as p:
        for _ in range(3):
            graph.replay()

    found = Counter(e.name for e in kernels(p.events()))
    assert found == {"aten::mm": 3, "aten::relu": 3}
    assert y.shape == (64, 64)


def test_an_operator_that_runs_on_its_caller_is_there_too():
    x = warm()
    x.nonzero()
    with profile(activities=BOTH) as p:
        x.nonzero()

    assert cpu_rows(p)["aten::nonzero"].self_device_time_total > 0


@pytest.mark.parametrize("activities", [BOTH, BOTH[1:]], ids=["both", "device alone"])
def test_tasks_of_a_synchronous_stream_are_there(activities):
    x = warm()
    with torch.npu.stream(torch.npu.SyncLaunchStream()):
        torch.add(x, 1)
        with profile(activities=activities) as p:
            torch.add(x, 1)

    assert [e.name for e in kernels(p.events())] == ["aten::add.Tensor"]


def test_nothing_is_kept_of_what_ran_outside():
    x = warm()
    torch.add(x, 1)
    with profile(activities=BOTH) as p:
        pass
    torch.add(x, 1)
    with profile(activities=BOTH) as again:
        torch.mul(x, 2)

    assert kernels(p.events()) == []
    assert {e.name for e in kernels(again.events())} == {"aten::mul.Tensor"}


def test_the_program_does_not_wait_while_it_is_profiled():
    """A held stream stays held from the profile's begin until its end."""
    x = warm()
    with held_stream(x) as (stream, gate), torch.npu.stream(stream):
        torch.mul(x, 2)  # before the profile, so no part of it
        with profile(activities=BOTH) as p:
            torch.add(x, 1)
            torch.npu.Event(enable_timing=True).record()
            torch.npu.Stream().wait_stream(stream)
            assert not stream.query()
            gate.set()

    assert [e.name for e in kernels(p.events())] == ["aten::add.Tensor"]


MIB = 1 << 20


def test_device_time_by_operator_is_what_the_stream_took(capfd):
    x = torch.rand(8, 8, device="npu")
    torch.npu.synchronize()
    began = time.perf_counter_ns()
    with profiler.profile(use_device="npu") as p:
        for _ in range(10):
            torch.add(x, 1)
        for _ in range(2):
            torch.npu._sleep(20_000_000)
            torch.mul(x, 2)
        with torch.autograd.profiler.record_function("slept"):
            torch.npu._sleep(30_000_000)
            torch.add(x, 1)
    wall_us = (time.perf_counter_ns() - began) / 1e3

    found = cpu_rows(p)
    assert found["aten::add"].count == 11
    assert found["aten::mul"].count == 2
    for name in ("aten::add", "aten::mul"):
        assert 0 < found[name].self_device_time_total < wall_us
    # What the stream does between an operator's begin and its end is its time.
    assert 30_000 <= found["slept"].device_time_total < wall_us
    assert sum(e.self_device_time_total for e in found.values()) < wall_us
    assert "Exception" not in capfd.readouterr().err
    assert "NPU" in p.key_averages().table()


def test_a_nested_operator_does_not_count_twice():
    x = torch.rand(64, 64, device="npu")
    with profiler.profile(use_device="npu") as p:
        torch.matmul(x, x)

    found = cpu_rows(p)
    outer, inner = found["aten::matmul"], found["aten::mm"]
    assert outer.device_time_total >= inner.device_time_total > 0
    assert outer.self_device_time_total == pytest.approx(
        outer.device_time_total - inner.device_time_total
    )


def test_an_operator_that_becomes_part_of_a_graph_has_no_device_time():
    x = torch.rand(8, 8, device="npu")
    graph = torch.npu.NPUGraph()
    with profiler.profile(use_device="npu") as p, torch.npu.graph(graph):
        y = torch.add(x, 1)
    graph.replay()

    assert cpu_rows(p)["aten::add"].device_time_total == 0
    assert y.equal(x + 1)


CPU = [ProfilerActivity.CPU]
PROFILES = {
    "use_device": lambda: profiler.profile(use_device="npu", profile_memory=True),
    "cpu": lambda: profiler.profile(profile_memory=True),
    "torch.profiler cpu": lambda: profile(activities=CPU, profile_memory=True),
    "torch.profiler both": lambda: profile(activities=BOTH, profile_memory=True),
}


@pytest.mark.parametrize("start", PROFILES.values(), ids=PROFILES)
def test_a_profile_sees_the_memory_of_the_device(start):
    x = torch.empty(MIB, dtype=torch.uint8, device="npu")
    torch.add(x, 1)  # what the first call of an operator takes besides
    with start() as p:
        y = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
        z = torch.add(x, 1)
        del y

    found = cpu_rows(p)
    assert found["aten::empty"].self_device_memory_usage >= 3 * MIB
    assert found["aten::add"].device_memory_usage == MIB
    assert found["aten::add"].cpu_memory_usage == 0
    assert found["[memory]"].device_memory_usage == -3 * MIB
    assert z.sum().item() >= 0


def test_profiled_memory_says_what_cpus_would_say_of_the_same_program():
    def program(device):
        x = torch.ones(MIB // 4, device=device)
        with profile(activities=CPU, profile_memory=True) as p:
            y = x * 2
            z = (y + x).view(512, -1).t().contiguous()
            del y
            w = [z.clone() for _ in range(3)]
            del w[1]
        kind = "cpu_memory_usage" if device == "cpu" else "device_memory_usage"
        return {
            name: getattr(e, kind)
            for name, e in cpu_rows(p).items()
            if name in ("aten::mul", "aten::add", "aten::clone", "[memory]")
        }

    assert program("npu") == program("cpu")


def test_marks_of_operators_that_npu_lacks_are_refused():
    no = [False] * 5
    config = ProfilerConfig(ProfilerState.PRIVATEUSE1, *no, _ExperimentalConfig())

    with pytest.raises(NotImplementedError, match=r"use torch\.profiler\.profile"):
        torch.autograd._enable_profiler(config, set())


def test_a_profile_notes_that_memory_ran_out():
    out_of_memory = pytest.raises(torch.OutOfMemoryError)
    with profiler.profile(profile_memory=True) as p, out_of_memory:
        torch.empty(1 << 50, dtype=torch.uint8, device="npu")

    assert "[OutOfMemory]" in {e.key for e in p.key_averages()}


def test_memory_is_reported_to_no_one_when_the_profile_is_over():
    with profiler.profile(profile_memory=True) as p:
        pass
    torch.empty(MIB, dtype=torch.uint8, device="npu")

    assert "[memory]" not in cpu_rows(p)
