"""The counts and times of collectives are those of the calls."""

from __future__ import annotations

COUNTED = """
import os
from pathlib import Path
from npu_dispatch import _C
from npu_dispatch.stats import StatsReader
from npu_dispatch.stats.collective_totals import read_totals

def totals():
    with StatsReader(Path(_C.segment_path())) as reader:
        return {(t.group.title, t.name): t for t in read_totals(*reader.behind())}
"""


def test_each_call_is_counted_however_many_come_in_a_second(ranks):
    ranks(
        COUNTED
        + """
join()
t = torch.ones(3, 5).npu()
alone = [dist.new_group([r], group_desc="alone") for r in range(size)][rank]
many = 8_000  # in about a second; a reader comes as seldom
for _ in range(many):
    dist.all_reduce(t, group=alone)
torch.npu.synchronize()
for _ in range(7):
    dist.all_reduce(t)
whole = torch.ones(size * 15).npu()
dist.all_gather_into_tensor(whole, t.view(-1))
dist.broadcast(t, 0)
if rank == 0:
    dist.send(t, 1)
else:
    dist.recv(t, 0)
torch.npu.synchronize()
found = totals()
counts = {key: (t.run.count, t.bytes) for key, t in found.items()}
message = "send" if rank == 0 else "recv"
assert counts == {
    ("alone", "all_reduce"): (many, many * 60),
    ("default_pg", "all_reduce"): (7, 7 * 60),
    ("default_pg", "all_gather_into_tensor"): (1, 60),
    ("default_pg", "broadcast"): (1, 60),
    ("default_pg", message): (1, 60),
}, counts
for t in found.values():
    assert sum(t.run.buckets) == t.run.count and t.failed == 0
    assert 0 <= t.host_wait_ns <= t.exposed_ns <= t.run.sum, t
    assert 0 <= t.waited_ns <= t.run.sum, t
assert found["alone", "all_reduce"].waited_ns == 0
"""
    )


def test_calls_that_find_no_room_in_the_log_are_counted(ranks):
    ranks(
        COUNTED
        + """
join()
x, t = torch.ones(600, 600).npu(), torch.ones(2).npu()
works = []
for _ in range(20):
    x = (x @ x).clamp(0, 1)
for _ in range(1500):  # behind that, more than the log holds
    works.append(dist.all_reduce(t, async_op=True))
for work in works:
    work.wait()
torch.npu.synchronize()
assert totals()["default_pg", "all_reduce"].run.count == 1500
"""
    )


def test_a_call_alone_is_exposed_and_one_behind_computing_is_not(ranks):
    ranks(
        COUNTED
        + """
import time
join()
big = torch.ones(1 << 21).npu()
dist.all_reduce(big)
torch.npu.synchronize()

def cost(call):
    before = totals()["default_pg", "all_reduce"]
    call()
    torch.npu.synchronize()
    after = totals()["default_pg", "all_reduce"]
    return (after.run.sum - before.run.sum, after.exposed_ns - before.exposed_ns,
            after.host_wait_ns - before.host_wait_ns)

run, exposed, host = cost(lambda: dist.all_reduce(big))
assert 0 < host <= exposed <= run, (run, exposed, host)

# A task of another stream that begins before the call and ends after it.
side = torch.npu.Stream()
def hidden():
    import threading
    begun, ended = threading.Event(), threading.Event()
    def compute():
        begun.set()
        ended.wait()
    side.submit(compute)
    begun.wait()
    work = dist.all_reduce(big, async_op=True)
    while not work.is_completed():
        pass
    ended.set()
run, exposed, host = cost(hidden)
assert exposed == host == 0 < run, (run, exposed, host)
"""
    )


def test_who_comes_first_waits_for_who_comes_last(ranks, tmp_path):
    ranks(
        COUNTED
        + """
join()
t = torch.ones(2).npu()
dist.all_reduce(t)
torch.npu.synchronize()
before = totals()["default_pg", "all_reduce"]
if rank == 0:
    work = dist.all_reduce(t, async_op=True)
    started = False
    while not started:
        with StatsReader(Path(_C.segment_path())) as reader:
            started = reader.collectives().calls[-1].state == "started"
    store().set("called", "")
    work.wait()
else:
    import time
    store().wait(["called"])
    begin = time.monotonic_ns()
    while time.monotonic_ns() - begin < 200_000_000:
        pass
    dist.all_reduce(t)
torch.npu.synchronize()
after = totals()["default_pg", "all_reduce"]
waited, run = after.waited_ns - before.waited_ns, after.run.sum - before.run.sum
assert waited >= 200_000_000 or rank == 1, waited
assert waited <= run
"""
    )


def test_waiting_launches_and_a_second_device_count_the_same(ranks):
    ranks(
        COUNTED
        + """
join()
torch.npu.set_launch_blocking(True)
on = torch.device("npu", torch.npu.device_count() - 1)
t = torch.ones(4, device=on)
for _ in range(50):
    dist.all_reduce(t)
with torch.npu.stream(torch.npu.Stream(on)):
    for _ in range(50):
        dist.all_reduce(t, async_op=True).wait()
torch.npu.synchronize(on)
[total] = totals().values()
assert (total.run.count, total.bytes) == (100, 1600), total
assert 0 < total.exposed_ns <= total.run.sum, total
"""
    )


def test_a_failed_call_counts_as_failed(ranks):
    ranks(
        COUNTED
        + """
join()
failure(lambda: dist.all_reduce(torch.ones(4 + rank).npu()))
[total] = totals().values()
assert (total.failed, total.run.count, total.bytes) == (1, 0, 0), total
os._exit(0)
"""
    )


def test_a_rank_is_that_of_the_world_in_a_group_of_some_too(ranks):
    ranks(
        COUNTED
        + """
import pytest
from npu_dispatch.diagnosis.top import Sampler
from npu_dispatch.processes import Processes
from npu_dispatch.prometheus.scrapes import Scrapes
join()
some = dist.new_group([1, 2], group_desc="some")
t = torch.ones(4).npu()
dist.all_reduce(t)
if rank:
    dist.all_reduce(t, group=some)
torch.npu.synchronize()
scrapes = Scrapes(Processes(pid=os.getpid()), ranked=False)
found = {
    (row.labels["group"], row.labels["collective"]): row
    for family in scrapes.families()
    if family.name == "npu_dispatch_collective_seconds"
    for row in family.rows
}
groups = ["default_pg"] + (["some"] if rank else [])
assert {key: row.labels["rank"] for key, row in found.items()} == {
    (group, "all_reduce"): str(rank) for group in groups
}, found
assert all(row.histogram.count == 1 for row in found.values())
sampler = Sampler([os.getpid()])
assert [row.rank for row in sampler.sample()[0]] == [str(rank)]
shown = {(row.group, row.rank) for row in sampler.collectives}
assert shown == {(group, rank) for group in groups}, shown
for _ in range(30):
    dist.all_reduce(t)
torch.npu.synchronize()
sampler.sample()
row = sampler.collectives[0]
assert row.bytes_per_s == pytest.approx(16 * row.calls_per_s) and row.calls_per_s > 0
""",
        size=3,
    )
