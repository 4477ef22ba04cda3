"""Counts, times and profiles of collectives are those of the calls."""

FACTS = """
import threading, time
from pathlib import Path
from npu_dispatch import _C
from npu_dispatch.observe.segment import StatsReader
from npu_dispatch.observe.segment.collectives import read_totals

def totals():
    with StatsReader(Path(_C.segment_path())) as reader:
        return {(t.group.title, t.name): t for t in read_totals(*reader.behind())}
def paired(name):  # a group of both ranks, of which each fact has its own
    group = dist.new_group([0, 1], group_desc=name)
    return group, lambda: totals()[name, "all_reduce"]
join()
@fact
def each_call_is_counted_however_many_come_in_a_second():
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
@fact
def calls_that_find_no_room_in_the_log_are_counted():
    group, total = paired("room")
    x, t = torch.ones(600, 600).npu(), torch.ones(2).npu()
    for _ in range(20):
        x = (x @ x).clamp(0, 1)
    # Behind that, more than the log holds.
    waited([dist.all_reduce(t, group=group, async_op=True) for _ in range(1500)])
    torch.npu.synchronize()
    assert total().run.count == 1500
@fact
def a_call_alone_is_exposed_and_one_behind_computing_is_not():
    group, total = paired("exposed")
    big = torch.ones(1 << 21).npu()
    dist.all_reduce(big, group=group)
    torch.npu.synchronize()
    def cost(call):
        before = total()
        call()
        torch.npu.synchronize()
        after = total()
        return (after.run.sum - before.run.sum, after.exposed_ns - before.exposed_ns,
                after.host_wait_ns - before.host_wait_ns)
    run, exposed, host = cost(lambda: dist.all_reduce(big, group=group))
    assert 0 < host <= exposed <= run, (run, exposed, host)
    # A task of another stream that begins before the call and ends after it.
    side = torch.npu.Stream()
    def hidden():
        begun, ended = threading.Event(), threading.Event()
        def compute():
            begun.set()
            ended.wait()
        side.submit(compute)
        begun.wait()
        work = dist.all_reduce(big, group=group, async_op=True)
        while not work.is_completed():
            pass
        ended.set()
    run, exposed, host = cost(hidden)
    assert exposed == host == 0 < run, (run, exposed, host)
@fact
def who_comes_first_waits_for_who_comes_last():
    group, total = paired("late")
    t = torch.ones(2).npu()
    dist.all_reduce(t, group=group)
    torch.npu.synchronize()
    before = total()
    if rank == 0:
        work = dist.all_reduce(t, group=group, async_op=True)
        started = False
        while not started:
            with StatsReader(Path(_C.segment_path())) as reader:
                started = reader.collectives().calls[-1].state == "started"
        store().set("called", "")
        work.wait()
    else:
        store().wait(["called"])
        begin = time.monotonic_ns()
        while time.monotonic_ns() - begin < 200_000_000:
            pass
        dist.all_reduce(t, group=group)
    torch.npu.synchronize()
    after = total()
    late, run = after.waited_ns - before.waited_ns, after.run.sum - before.run.sum
    assert late >= 200_000_000 or rank == 1, late
    assert late <= run
@fact
def waiting_launches_and_a_second_device_count_the_same():
    group, total = paired("blocking")
    on = torch.device("npu", 1)
    t = torch.ones(4, device=on)
    with torch.npu.launch_blocking():
        for _ in range(50):
            dist.all_reduce(t, group=group)
        with torch.npu.stream(torch.npu.Stream(on)):
            for _ in range(50):
                dist.all_reduce(t, group=group, async_op=True).wait()
    torch.npu.synchronize(on)
    found = total()
    assert (found.run.count, found.bytes) == (100, 1600), found
    assert 0 < found.exposed_ns <= found.run.sum, found
@fact
def a_failed_call_counts_as_failed():  # the last: the job has failed with it
    group, total = paired("failing")
    failure(lambda: dist.all_reduce(torch.ones(4 + rank).npu(), group=group))
    found = total()
    assert (found.failed, found.run.count, found.bytes) == (1, 0, 0), found
    os._exit(0)
"""


def test_counts_and_times_of_collectives_are_those_of_the_calls(ranks):
    ranks(FACTS, NPU_DISPATCH_DEVICES="2")


def test_a_rank_is_that_of_the_world_in_a_group_of_some_too(ranks):
    ranks(
        """
import pytest
from npu_dispatch.observe.judge.top import Sampler
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.scrapes import Scrapes
join()
some = dist.new_group([1, 2], group_desc="some")
t = torch.ones(4).npu()
dist.all_reduce(t)
if rank:
    dist.all_reduce(t, group=some)
torch.npu.synchronize()
scrapes = Scrapes(ServiceConfig(pid=os.getpid()))
found = {
    (sample.labels["group"], sample.labels["collective"]): sample
    for family in scrapes.families()
    if family.name == "npu_dispatch_collective_seconds"
    for sample in family.samples
    if sample.name.endswith("_count")
}
groups = ["default_pg"] + (["some"] if rank else [])
assert {key: sample.labels["rank"] for key, sample in found.items()} == {
    (group, "all_reduce"): str(rank) for group in groups
}, found
assert all(sample.value == 1 for sample in found.values())
sampler = Sampler([os.getpid()])
sample = sampler.sample()
assert [row["rank"] for row in sample.processes] == [str(rank)]
shown = {(row["group"], row["rank"]) for row in sample.collectives}
assert shown == {(group, rank) for group in groups}, shown
for _ in range(30):
    dist.all_reduce(t)
torch.npu.synchronize()
row = sampler.sample().collectives[0]
assert row["calls_per_s"] > 0
assert row["bytes_per_s"] == pytest.approx(16 * row["calls_per_s"])
""",
        size=3,
    )


CODE = """
import json
from torch.profiler import ProfilerActivity, profile
join("hccl")
group = dist.new_group([0, 1], group_desc="pairs")
t, out = torch.ones(1000).npu(), torch.empty(2000).npu()
half, got = torch.ones(1000).npu().half(), torch.empty(1000).npu().half()
def calls():
    dist.all_reduce(t, async_op=True).wait()
    dist.all_gather_into_tensor(out, t, group=group)
    works = [dist.isend(half, 1 - rank), dist.irecv(got, 1 - rank)]
    for work in works: work.wait()
calls()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as p:
    calls()
p.export_chrome_trace(f"profile{rank}.json")
with open(f"profile{rank}.json") as file:
    events = json.load(file)["traceEvents"]
for event in events:
    event["args"] = event.get("args", {})
by_operator = [e["args"] for e in events if e.get("name") == "record_param_comms"]
kernels = [e for e in events if e.get("name", "").startswith("hccl:")
           and e.get("cat") == "kernel"]
assert len(by_operator) == len(kernels) == 4, (by_operator, kernels)
by_kernel = {e["name"]: e["args"] for e in kernels}
assert {a["Collective name"] for a in by_operator} == {
    name.removeprefix("hccl:") for name in by_kernel}
for name, args in by_kernel.items():
    [operator] = [a for a in by_operator
                  if a["Collective name"] == name.removeprefix("hccl:")]
    for key in ("Seq", "dtype", "In msg nelems", "Out msg nelems",
                "Process Group Ranks"):
        assert args[key] == operator[key], (name, key, args, operator)
    assert args["Process Group Ranks"] == "[0, 1]" and args["Group size"] == 2
    assert operator["Rank"] == rank
reduced = by_kernel["hccl:all_reduce"]
gathered = by_kernel["hccl:all_gather_into_tensor"]
assert (reduced["In msg nelems"], reduced["Out msg nelems"]) == (1000, 1000)
assert (gathered["In msg nelems"], gathered["Out msg nelems"]) == (1000, 2000)
assert reduced["dtype"] == "Float"
assert gathered["Process Group Description"] == "pairs"
sent, received = by_kernel["hccl:send"], by_kernel["hccl:recv"]
assert (sent["In msg nelems"], sent["Out msg nelems"]) == (1000, 0)
assert (received["In msg nelems"], received["Out msg nelems"]) == (0, 1000)
assert sent["dtype"] == "Half"
"""


def test_an_operator_and_a_kernel_tell_group_number_and_sizes(ranks):
    ranks(CODE)
