"""torch.autograd.profiler with use_device="npu", memory in profiles, markers."""

from __future__ import annotations

import os
import time
from collections import Counter

import pytest
import torch
from torch.autograd import DeviceType
from torch.autograd.profiler import profile
from torch.profiler import ProfilerActivity

from npu_dispatch.observe.trace import trace

MIB = 1 << 20


def rows(p) -> dict:
    return {e.key: e for e in p.key_averages() if e.device_type == DeviceType.CPU}


def test_device_time_by_operator_is_what_the_stream_took(capfd):
    x = torch.rand(8, 8, device="npu")
    torch.npu.synchronize()
    began = time.perf_counter_ns()
    with profile(use_device="npu") as p:
        for _ in range(10):
            torch.add(x, 1)
        for _ in range(2):
            torch.npu._sleep(20_000_000)
            torch.mul(x, 2)
        with torch.autograd.profiler.record_function("slept"):
            torch.npu._sleep(30_000_000)
            torch.add(x, 1)
    wall_us = (time.perf_counter_ns() - began) / 1e3

    found = rows(p)
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
    with profile(use_device="npu") as p:
        torch.matmul(x, x)

    found = rows(p)
    outer, inner = found["aten::matmul"], found["aten::mm"]
    assert outer.device_time_total >= inner.device_time_total > 0
    assert outer.self_device_time_total == pytest.approx(
        outer.device_time_total - inner.device_time_total
    )


def test_an_operator_that_becomes_part_of_a_graph_has_no_device_time():
    x = torch.rand(8, 8, device="npu")
    graph = torch.npu.NPUGraph()
    with profile(use_device="npu") as p, torch.npu.graph(graph):
        y = torch.add(x, 1)
    graph.replay()

    assert rows(p)["aten::add"].device_time_total == 0
    assert y.equal(x + 1)


@pytest.mark.parametrize(
    "start",
    [
        lambda: profile(use_device="npu", profile_memory=True),
        lambda: profile(profile_memory=True),
        lambda: torch.profiler.profile(
            activities=[ProfilerActivity.CPU], profile_memory=True
        ),
        lambda: torch.profiler.profile(
            activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1],
            profile_memory=True,
        ),
    ],
    ids=["use_device", "cpu", "torch.profiler cpu", "torch.profiler both"],
)
def test_a_profile_sees_the_memory_of_the_device(start):
    x = torch.empty(MIB, dtype=torch.uint8, device="npu")
    torch.add(x, 1)  # what the first call of an operator takes besides
    with start() as p:
        y = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
        z = torch.add(x, 1)
        del y

    found = rows(p)
    assert found["aten::empty"].self_device_memory_usage >= 3 * MIB
    assert found["aten::add"].device_memory_usage == MIB
    assert found["aten::add"].cpu_memory_usage == 0
    assert found["[memory]"].device_memory_usage == -3 * MIB
    assert z.sum().item() >= 0


def test_profiled_memory_says_what_cpus_would_say_of_the_same_program():
    def program(device: str) -> dict[str, int]:
        x = torch.ones(MIB // 4, device=device)
        with torch.profiler.profile(
            activities=[ProfilerActivity.CPU], profile_memory=True
        ) as p:
            y = x * 2
            z = (y + x).view(512, -1).t().contiguous()
            del y
            w = [z.clone() for _ in range(3)]
            del w[1]
        kind = "cpu_memory_usage" if device == "cpu" else "device_memory_usage"
        return {
            name: getattr(e, kind)
            for name, e in rows(p).items()
            if name in ("aten::mul", "aten::add", "aten::clone", "[memory]")
        }

    assert program("npu") == program("cpu")


def test_a_profile_notes_that_memory_ran_out():
    with profile(profile_memory=True) as p, pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="npu")

    assert "[OutOfMemory]" in {e.key for e in p.key_averages()}


def test_memory_is_reported_to_no_one_when_the_profile_is_over():
    with profile(profile_memory=True) as p:
        pass
    torch.empty(MIB, dtype=torch.uint8, device="npu")

    assert "[memory]" not in rows(p)


def test_operators_alone_can_be_marked_in_the_trace():
    x = torch.ones(8, device="npu")
    torch.matmul(x, x)  # what the first call of an operator runs besides

    calls = 0

    def work(_seconds: float) -> None:
        nonlocal calls
        calls += 1
        config = torch.autograd.ProfilerConfig(
            torch.autograd.ProfilerState.PRIVATEUSE1,
            False, False, False, False, False,
            torch._C._profiler._ExperimentalConfig(), "",
        )  # fmt: skip
        torch.autograd._enable_profiler(config, set())
        try:
            torch.matmul(x, x)
        finally:
            torch.autograd._disable_profiler()
        torch.matmul(x, x)

    process = trace.of_process(os.getpid(), 0.2, wait=work)

    spans = [span for lane in process.lanes for span in lane.spans]
    found = Counter(span.name for span in spans if span.domain == "profiler")
    assert found == {"aten::matmul": calls, "aten::dot": calls}
