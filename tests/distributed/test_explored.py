"""Collectives under chosen interleavings, and under the race sanitizer."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from sanitizer_off import sanitizer_off

from npu_dispatch.testing import ScheduleError, explore

pytestmark = pytest.mark.npu_races("to see them make a difference")

HEAD = """
from npu_dispatch.testing import ScheduleError, explore
join("hccl")
def differs(program, schedules=30):
    run = lambda: explore(program, schedules=schedules)
    return str(raises(ScheduleError, "", run))
"""


FACTS = """
@fact
def a_forgotten_wait_differs_on_both_ranks():
    def forgets():
        t = torch.full((100,), rank + 1.).npu()
        torch.npu.synchronize()
        dist.all_reduce(t, async_op=True)
        return t * 2
    def waits():
        t = torch.full((100,), rank + 1.).npu()
        torch.npu.synchronize()
        dist.all_reduce(t, async_op=True).wait()
        return t * 2
    assert "the result depends on how streams interleave" in differs(forgets)
    runs = explore(waits, schedules=10)
    assert len({run.trace for run in runs}) > 1
@fact
def replays_of_a_graph_with_collectives_are_delayed():
    t, doubled = torch.zeros(100).npu(), torch.zeros(100).npu()
    graph, side = torch.npu.NPUGraph(), torch.npu.Stream()
    with torch.npu.graph(graph):
        dist.all_reduce(t)
    def program(waits):
        def run():
            t.fill_(rank + 1.)
            torch.npu.synchronize()
            graph.replay()
            if waits: side.wait_stream(torch.npu.current_stream())
            with torch.npu.stream(side):
                torch.mul(t, 2, out=doubled)
            torch.npu.current_stream().wait_stream(side)
            return doubled.clone()
        return run
    assert "the result depends on how streams interleave" in differs(program(False))
    explore(program(True), schedules=10)
    assert doubled.eq(6).all()
@fact
def ranks_that_wait_for_each_other_end_under_all_schedules():
    other = dist.new_group([0, 1])
    peer = 1 - rank
    def messages():
        sent, got = torch.full((1000,), rank + 1.).npu(), torch.zeros(1000).npu()
        torch.npu.synchronize()
        works = [dist.isend(sent, peer), dist.irecv(got, peer)]
        for work in works: work.wait()
        return got
    def groups():
        a, b = torch.ones(10).npu(), torch.ones(10).npu()
        side = torch.npu.Stream()
        side.wait_stream(torch.npu.current_stream())
        with torch.npu.stream(side):
            one = dist.all_reduce(a, async_op=True)
            dist.all_reduce(b, group=other)
        one.wait()
        torch.npu.current_stream().wait_stream(side)
        dist.barrier()
        dist.all_reduce(a)
        return a + b
    assert (messages() == peer + 1).all()
    explore(messages, schedules=5)
    explore(groups, schedules=10)
"""


def test_schedules_tell_programs_that_wait_from_those_that_do_not(ranks):
    ranks(HEAD + FACTS)


def test_what_one_rank_has_found_stops_all(ranks):
    first, second = ranks(
        HEAD
        + """
def read_on_rank_1():
    t = torch.full((100,), float(rank)).npu()
    torch.npu.synchronize()
    work = dist.broadcast(t, 0, async_op=True)
    if rank == 0:
        work.wait()
    return t + 1
print(differs(read_on_rank_1).splitlines()[0])
"""
    )
    assert "on rank 1: value 0" in first.stdout
    assert "interleave: value 0" in second.stdout


def test_a_group_of_one_forgets_to_wait():
    t, out = torch.ones(100, device="npu"), torch.empty(100, device="npu")

    def forgets() -> torch.Tensor:
        out.zero_()
        torch.npu.synchronize()
        dist.all_gather_into_tensor(out, t, async_op=True)
        return out * 2

    def waits() -> torch.Tensor:
        out.zero_()
        torch.npu.synchronize()
        dist.all_gather_into_tensor(out, t, async_op=True).wait()
        return out * 2

    with sanitizer_off():
        dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
        try:
            explore(waits, schedules=10)
            with pytest.raises(ScheduleError):
                explore(forgets, schedules=30)
        finally:
            dist.destroy_process_group()


HERE = Path(__file__).parent
TRAINING = ("test_training.py", "test_collectives.py", "test_streams.py")


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", TRAINING)
def test_the_tests_of_training_pass_under_the_sanitizer(file: str):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not nightly"]
    done = subprocess.run(
        [*command, str(HERE / file)],
        env=os.environ | {"NPU_TEST_SANITIZE_RANKS": "1"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout[-5000:]
