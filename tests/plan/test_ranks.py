"""`plan --ranks`: jobs of torchrun's of which one rank runs, against a topology."""

import json
import re
from pathlib import Path

import pytest
from interpreter import Spawned

from npu_dispatch.plan import topology
from npu_dispatch.plan.study import Network, counts

SLOW = """
name = "slow"
source = "this test"
date = "2026"
per_host = 8
[inside]
alpha_us = 1
gb_per_s = 1000
[across]
alpha_us = 1
gb_per_s = 0.001
links = 1
"""

JOB = """
import os, torch, torch.distributed as dist
dist.init_process_group("hccl")
rank, local, world = (int(os.environ[n]) for n in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
assert (rank, world) == (dist.get_rank(), dist.get_world_size())
torch.npu.set_device(local)
"""

MODEL = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(256, 256) for _ in range(3)]).npu()
{wrapped}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.ones(4096, 256, device="npu")
while True:
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
"""
DDP = "model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local])"
ONE_TO_1024 = [1 << i for i in range(11)]


def test_ddp_is_planned_for_all_numbers_of_ranks(planned) -> None:
    options = ("--ranks", "64", "--topology", "nvl8+ib400")
    report = planned(JOB + MODEL.format(wrapped=DDP), 1, *options).report
    ranks = report["ranks"]
    assert [row["ranks"] for row in ranks] == ONE_TO_1024
    steps = [row["step_us"] for row in ranks]
    assert ranks[0]["exposed_us"] == 0 and steps == sorted(steps)
    assert report["step_us"] == steps[6]
    assert ranks[0]["bound_by"] == "device"
    # Collectives can be captured, so the step can.
    assert report["graph"]["step_us"] > 0
    # All gradients are one bucket; torch's log of times lets no step wait.
    calls = {row["name"]: row["calls"] for row in report["operators"]}
    assert calls["hccl:all_reduce"] == 1
    assert {b["reason"] for b in report["blames"]} <= {"launches", "full_queue"}
    assert all("script.py" in b["where"] for b in report["blames"])

    plain = planned(MODEL.format(wrapped=""), 1).report
    assert not plain["ranks"]
    assert steps[0] == pytest.approx(plain["step_us"], rel=0.1)


def test_the_lines_that_ask_for_the_rank_are_named(planned) -> None:
    """Those of the program: DDP asks for it, too, and whoever copies all variables."""
    asks = """
if dist.get_rank() == 0:
    everything = dict(os.environ)
if os.getenv("RANK") == "0" and "RANK" in os.environ:
    pass
"""
    job = JOB.replace('("RANK", "LOCAL_RANK", "WORLD_SIZE")', '("LOCAL_RANK",) * 3')
    job = job[: job.index("assert")] + "torch.npu.set_device(0)\n"
    program = job + asks + MODEL.format(wrapped=DDP)
    done = planned(program, 1, "--ranks", "64", "--topology", "nvl8+ib400")
    (note,) = (n for n in done.report["notes"] if "rank" in n)
    lines = re.findall(r"script\.py:(\d+)", note)
    source = program.splitlines()
    assert [source[int(n) - 1] for n in lines] == asks.splitlines()[1:4:2]
    assert note.startswith("Only rank 0 was run") and "Only rank 0" in done.out

    alike = planned(job + MODEL.format(wrapped=DDP), 1, "--ranks", "2").report
    (note,) = (n for n in alike["notes"] if "rank" in n)
    assert "asks for its rank" not in note
    assert not planned(MODEL.format(wrapped=""), 1).report["notes"]


def test_a_slow_network_is_what_bounds(planned, tmp_path: Path) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text(SLOW)
    options = ("--ranks", "24", "--topology", str(slow))
    report = planned(JOB + MODEL.format(wrapped=DDP), 1, *options).report
    bounds = {row["ranks"]: row["bound_by"] for row in report["ranks"]}
    assert sorted(bounds) == sorted([*ONE_TO_1024, 24])
    assert {bounds[n] for n in (1, 2, 4, 8)} == {"device"}
    assert {bounds[n] for n in (16, 24, 64, 1024)} == {"across hosts"}


BESIDE = """
model = torch.nn.Linear(8, 8).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
a, t = torch.ones(1024, 1024, device="npu"), torch.ones(1 << 20, device="npu")
while True:
    work = dist.all_reduce(t, async_op=True)
    {before}
    a @ a
    {after}
    optimizer.step()
"""


def test_a_collective_beside_work_is_not_exposed(planned) -> None:
    options = ("--ranks", "16")
    wait = "work.wait()"
    beside = planned(JOB + BESIDE.format(before="", after=wait), 1, *options).report
    assert {row["exposed_us"] for row in beside["ranks"]} == {0}

    waits = planned(JOB + BESIDE.format(before=wait, after=""), 1, *options).report
    links = topology.load("nvl8+ib400")
    for row in waits["ranks"]:
        seconds, _ = links.seconds("all_reduce", 4 << 20, range(row["ranks"]))
        assert row["exposed_us"] == pytest.approx(seconds * 1e6, rel=0.01, abs=0.01)


OBJECTS = """
found, told = [None] * world, [{"seed": 3}, None]
dist.all_gather_object(found, {"rank": rank})
dist.broadcast_object_list(told, src=0)
assert found == [{"rank": 0}] * world and told == [{"seed": 3}, None]
"""
FSDP = """
from torch.distributed.fsdp import fully_shard
for layer in (*model, model):
    fully_shard(layer)
"""


def test_fsdp_and_objects(planned) -> None:
    model = MODEL.format(wrapped=FSDP).replace("SGD", "AdamW")
    options = ("--ranks", "8", "--topology", "nvl8")
    report = planned(JOB + OBJECTS + model, 1, *options).report
    # The topology is one host of 8 ranks.
    assert [row["ranks"] for row in report["ranks"]] == [1, 2, 4, 8]
    calls = {row["name"]: row["calls"] for row in report["operators"]}
    assert calls["hccl:reduce_scatter"] == 3
    assert 3 <= calls["hccl:all_gather"] <= 6


def test_what_cannot_be_captured_is_said(planned) -> None:
    loop = BESIDE.format(before="", after="work.wait(); dist.send(t, 1)")
    report = planned(JOB + loop, 1, "--ranks", "2").report
    assert "send and recv cannot be captured" in report["graph"]["why_not"]


RECORDED = """
import json, torch, torch.distributed as dist
import torch.distributed._functional_collectives as functional
from npu_dispatch import _C
from npu_dispatch.plan import group
group.install(16, per_host=8)
dist.init_process_group({backend})
assert dist.get_world_size() == 16 and dist.get_rank() == 0
every = dist.group.WORLD
really = _C.plan_collective
def recorded(calls):
    # What the recorder would be told, which is not there.
    told = []
    _C.plan_collective = lambda *call: told.append(call)
    calls()
    _C.plan_collective = really
    return told
"""


def works_of(python: Spawned, calls: str, backend: str = '"hccl"'):
    code = RECORDED.format(backend=backend) + calls + "\nprint(json.dumps(found))"
    done = python(code, NPU_DRIVER="emulated", NPU_EMULATED_SPEC="h100-sxm")
    return [tuple(work) for work in json.loads(done.stdout.splitlines()[-1])]


EVERY = list(range(16))


def test_calls_are_recorded_with_their_kinds_sizes_and_ranks(python: Spawned) -> None:
    calls = """
def calls():
    t, all_of_it = torch.ones(16, device="npu"), torch.ones(16, 16, device="npu")
    for work in [
        functional.all_reduce(t, "sum", every),
        functional.all_gather_single(t, 0, every),
        functional.reduce_scatter_single(all_of_it, "sum", 0, every),
        functional.all_to_all_single(all_of_it, None, None, every),
    ]:
        functional.wait_tensor(work)
    dist.broadcast(t, 5)
    dist.reduce(t, 3)
    dist.gather(t, dst=1)
    dist.scatter(t, list(all_of_it))
    dist.barrier()
    dist.send(t, 9)
    with dist._coalescing_manager(device=t.device, async_ops=True) as both:
        dist.all_reduce(t)
        dist.isend(t, 8)
    both.wait()
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, t, 15)]):
        work.wait()
found = recorded(calls)
"""
    assert works_of(python, calls) == [
        ("all_reduce", 64, EVERY),
        ("all_gather", 1024, EVERY),
        ("reduce_scatter", 1024, EVERY),
        ("all_to_all", 1024, EVERY),
        ("broadcast", 64, EVERY),
        ("reduce", 64, EVERY),
        ("gather", 1024, EVERY),
        ("scatter", 1024, EVERY),
        ("barrier", 0, EVERY),
        ("send", 64, [0, 9]),
        # torch keeps back those that it makes one of.
        ("send", 64, [0, 8]),
        ("all_reduce", 64, EVERY),
        ("send", 64, [15, 0]),
    ]


@pytest.mark.parametrize("backend", ["None", '"nccl"', '"cpu:gloo,npu:hccl"'])
def test_groups_of_any_backend_are_made_alone(python: Spawned, backend: str) -> None:
    calls = """
column = dist.new_group(range(0, 16, 8))
others = dist.new_group([1, 2])
assert others is dist.GroupMember.NON_GROUP_MEMBER
def calls():
    dist.all_reduce(torch.ones(8, device="npu"), group=column)
found = recorded(calls)
calls()  # without a recording
dist.destroy_process_group()
"""
    assert works_of(python, calls, backend) == [("all_reduce", 32, [0, 8])]


def test_ranks_on_the_cpu_are_alike(python: Spawned) -> None:
    calls = """
def calls():
    t = torch.arange(16.0)
    dist.all_reduce(t)
    assert t.equal(16 * torch.arange(16.0))
    dist.all_reduce(t, op=dist.ReduceOp.AVG)
    parts = [torch.empty(16) for _ in range(16)]
    dist.all_gather(parts, t)
    assert all(part.equal(t) for part in parts)
    one = torch.empty(1)
    dist.reduce_scatter(one, list((t + 1).view(16, 1)))
    assert one == 16
    dist.scatter(one, list((t + 2).view(16, 1)))
    assert one == 2
    dist.all_to_all_single(parts[0], t + 5)
    assert parts[0].eq(5).all()
    told = [None]
    dist.scatter_object_list(told, [str(rank) for rank in range(16)])
    assert told == ["0"]
found = recorded(calls)
"""
    assert works_of(python, calls) == []


def test_ddp_has_the_buckets_that_it_forms_in_its_second_step(python: Spawned) -> None:
    calls = """
torch.npu.set_stream(torch.npu.Stream())
layers = [torch.nn.Linear(1024, 1024, bias=False) for _ in range(9)]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).npu())
x = torch.ones(1, 1024, device="npu")
model(x).sum().backward()
def calls():
    for _ in range(2):
        model(x).sum().backward()
found = recorded(calls)
"""
    # The first is full at 1 MiB, and others at 25; a layer is 4 MiB.
    reduced = [size for kind, size, _ in works_of(python, calls) if "all_re" in kind]
    assert reduced == 2 * [4 << 20, 28 << 20, 4 << 20]


def collective(kind: str, size: int, ranks: list[int]):
    return {"type": "collective", "kind": kind, "bytes": size, "ranks": ranks}


def test_groups_grow_with_the_job_where_they_span_it(tmp_path: Path) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text(SLOW)
    links = topology.load(str(slow))
    network = Network(links, 64)
    size = 1 << 20
    works = [
        {"type": "work", "kind": "kernel", "bytes": 5.0},
        collective("all_reduce", size, list(range(64))),
        collective("all_gather", size, list(range(0, 64, 8))),
        collective("all_reduce", size, list(range(8))),
        collective("send", size, [0, 63]),
        collective("broadcast", size, [0, 1, 5]),
    ]
    unknown = [-1.0] * len(works)
    found = network.ns(works, 256, unknown)
    expected = [
        links.seconds("all_reduce", size, range(256)),
        # One rank of each host: there are eight such groups.
        links.seconds("all_gather", size, range(0, 256, 8), sharing=8),
        links.seconds("all_reduce", size, range(8)),
        links.seconds("send", size, [0, 63], sharing=8),
        links.seconds("broadcast", size, [0, 1, 5], sharing=2),
    ]
    assert found == [-1, *(pytest.approx(seconds * 1e9) for seconds, _ in expected)]
    # Alone, a rank waits for nobody.
    assert network.ns(works, 1, unknown) == [-1, 0, 0, 0, 0, 0]
    # On half of a host, it has no peers across.
    half = network.ns(works, 4, unknown)
    assert half[1] == half[3] == links.seconds("all_reduce", size, range(4))[0] * 1e9
    assert half[2] == half[4] == 0


def test_a_job_of_one_rank_stands_for_all_numbers() -> None:
    links = topology.load("nvl8")
    work = collective("all_reduce", 1024, [0])
    ns, link = Network(links, 1).time(work, 8)
    seconds, _ = links.seconds("all_reduce", 1024, range(8))
    assert (ns, link) == (pytest.approx(seconds * 1e9), "inside hosts")
    assert counts(links, 1) == [1, 2, 4, 8]
    assert counts(topology.load("nvl8+ib400"), 3000)[-3:] == [1024, 2048, 3000]
