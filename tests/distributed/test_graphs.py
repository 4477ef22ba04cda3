"""Collectives in graphs: each replay is one call of every rank."""

import pytest

# Calls on the stream of the capture, on the group's own, and of a part.
CAPTURED = """
join(seconds=30)
torch.npu.set_device(0)
half = dist.new_group([0, 1])
x, big, out = torch.zeros(4).npu(), torch.zeros(1 << 18).npu(), torch.empty(8).npu()
def body(add):
    u = x + add
    dist.all_reduce(u)
    work = dist.all_reduce(big, group=half, async_op=True)
    v = u * 2
    work.wait()
    dist.all_gather_single(out, v) if hasattr(dist, "all_gather_single") else \\
        dist.all_gather_into_tensor(out, v)
    return u, big + v.sum()
def captured(add):
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        results = body(add)
    return graph, results
def check(step, graph, results, add):
    x.fill_(step + rank)
    big.fill_(rank)
    graph.replay()
    value = 2 * step + 1 + 2 * add
    assert results[0].tolist() == [value] * 4, (step, results[0])
    assert out.tolist() == [2 * value] * 8
    assert results[1].eq(1 + 8 * value).all()
"""


@pytest.mark.parametrize("variables", [{}, {"ASCEND_LAUNCH_BLOCKING": "1"}])
def test_replays_call_collectives_as_eager_code_does(ranks, variables):
    ranks(
        CAPTURED
        + """
one, of_one = captured(1)
two, of_two = captured(2)
for step in range(3):  # two graphs in turns, and eager calls between
    check(step, one, of_one, 1)
    t = torch.ones(2).npu()
    dist.all_reduce(t)
    assert t.tolist() == [2, 2]
    check(step, two, of_two, 2)
side = torch.npu.Stream()
with torch.npu.stream(side):  # on another stream than the capture's
    check(7, one, of_one, 1)
    check(8, two, of_two, 2)
x.fill_(rank)
torch.npu.synchronize()
for _ in range(50): one.replay()  # many are queued at once
torch.npu.synchronize()
assert of_one[0].tolist() == [3] * 4
del one, of_one  # the group may go before the graphs that use it
dist.destroy_process_group(half)
check(3, two, of_two, 2)
""",
        **variables,
    )


def test_a_rank_that_replays_another_graph_is_found(ranks):
    results = ranks(
        """
        join(seconds=30)
        x = torch.ones(4).npu()
        graphs = []
        for _ in range(2):
            graphs.append(torch.npu.NPUGraph())
            with torch.npu.graph(graphs[-1]):
                dist.all_reduce(x)
        graphs[0].replay()
        torch.npu.synchronize()
        graphs[rank].replay()
        torch.npu.synchronize()
        """,
        check=False,
    )
    for result in results:
        assert result.returncode
        assert "the ranks disagree" in result.stderr
        for rank in range(2):
            assert f"captured as #{rank}" in result.stderr


FACTS = """
import pickle
from npu_dispatch.distributed import dump_flight_recorder
join(seconds=30)
@fact
def replays_run_on_a_second_device_and_of_several_groups():
    torch.npu.set_device(1)
    groups = [dist.new_group([0, 1]) for _ in range(2)]
    a, b = torch.zeros(3, device="npu:1"), torch.zeros(3, device="npu:1")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        waited([
            dist.all_reduce(t, group=group, async_op=True)
            for t, group in zip((a, b), groups)
        ])
        total = a + b
    torch.npu.set_device(0)
    for step in range(4):
        a.fill_(step + rank)
        b.fill_(1.)
        graph.replay()
        assert total.tolist() == [2 * step + 3] * 3
@fact
def what_cannot_be_captured_is_refused_and_changes_nothing():
    t, peer = torch.ones(2).npu(), 1 - rank
    calls = {
        "barrier": lambda: dist.barrier(),
        "send": lambda: dist.isend(t, peer),
        "batch_isend_irecv": lambda: swap(t, t, peer),
    }
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        for name, call in calls.items():
            raises(RuntimeError, f"{name} cannot be captured in a graph", call)
        work = dist.all_reduce(t, async_op=True)
        raises(RuntimeError, "query", work.is_completed)
        work.wait()
    graph.replay()
    assert t.tolist() == [2, 2]
    dist.barrier()
@fact
def the_flight_recorder_has_each_replay():
    group = dist.new_group([0, 1], group_desc="replayed")
    x = torch.ones(4, 2).npu()
    dist.all_reduce(x, group=group)
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        dist.all_reduce(x, group=group)
        dist.broadcast(x, 0, group=group)
    for _ in range(2): graph.replay()
    torch.npu.synchronize()
    said = [
        (e["profiling_name"], e["collective_seq_id"], e["state"], e["input_sizes"])
        for e in pickle.loads(dump_flight_recorder())["entries"]
        if e["process_group"][1] == "replayed"
    ]
    calls = ("all_reduce", 0), *((("all_reduce", "broadcast")[n % 2 == 0], n)
                                 for n in range(3, 7))
    assert said == [
        (f"hccl:{name}", n, "completed", [[4, 2]]) for name, n in calls], said
"""


def test_replays_on_devices_and_in_the_recorder_and_what_is_no_part_of_them(ranks):
    ranks(FACTS, NPU_DISPATCH_DEVICES="2")


BATCH_NORM = """
import torch.nn as nn
join(seconds=30)
torch.npu.set_device(0)
norm, stream = nn.SyncBatchNorm(3).npu(), torch.npu.Stream()
x = batch(0, 4, 3, 5).npu().requires_grad_()
def step():
    x.grad.zero_()
    y = norm(x)
    y.pow(3).sum().backward()
    return y
torch.npu.synchronize()
with torch.npu.stream(stream):
    x.grad = torch.zeros(4, 3, 5).npu()
    step()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, stream=stream):
        y = step()
    graph.replay()
    replayed = [y.tolist(), x.grad.tolist()]
    eager = [step().tolist(), x.grad.tolist()]
assert replayed == eager
"""


def test_a_synchronized_batch_norm_is_captured(ranks):
    ranks(BATCH_NORM)


# A DDP step of a tiny GPT: on cpu with gloo, eager, and in one replay. As on CUDA,
# DDP is made and warmed up on the stream of the capture.
GPT = """
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
def small_gpt():
    block = nn.TransformerEncoderLayer(32, 4, 128, 0.0, F.gelu, batch_first=True)
    return nn.Sequential(
        nn.Embedding(64, 32), nn.TransformerEncoder(block, 2), nn.Linear(32, 64))
WARM_UP, STEPS = 11, 16
def tokens(step):
    seed = torch.Generator().manual_seed(size * step + rank)
    return torch.randint(0, 64, (4, 17), generator=seed)
def train(device, captured):
    torch.manual_seed(0)
    stream = torch.npu.Stream() if device == "npu" else None
    losses = []
    with torch.npu.stream(stream):
        model = DDP(small_gpt().to(device), bucket_cap_mb=0.02)
        optimizer = torch.optim.SGD(
            model.parameters(), 0.1, momentum=0.9, foreach=True)
        x = torch.zeros(4, 17, dtype=torch.long, device=device)
        def step():
            optimizer.zero_grad(set_to_none=False)
            logits = model(x[:, :-1]).flatten(0, 1)
            loss = F.cross_entropy(logits, x[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss
        graph = None
        for i in range(STEPS):
            x.copy_(tokens(i))
            if captured and i == WARM_UP:
                graph = torch.npu.NPUGraph()
                with torch.npu.graph(graph, stream=stream):
                    loss = step()
            graph.replay() if graph else (loss := step())
            losses.append(loss.item())
    return losses
join("cpu:gloo,npu:hccl", seconds=30)
cpu, eager, replayed = train("cpu", False), train("npu", False), train("npu", True)
near(cpu, eager)
assert eager == replayed, (eager, replayed)
"""


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_ddp_step_in_one_replay_trains_as_eager_and_as_gloo(ranks, size):
    ranks(GPT, size)
