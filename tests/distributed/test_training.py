"""Models on many ranks train as on cpu with gloo, eager and compiled, and are saved."""

import pytest

HEAD = """
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel,
    parallelize_module)
from torch.nn.parallel import DistributedDataParallel as DDP
join("cpu:gloo,npu:hccl")
torch.npu.set_device(0)
def net(wide=33, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, wide), nn.ReLU(), nn.Linear(wide, 4))
def train(model, optimizer, device, inputs):
    losses = []
    for x in inputs:
        out = model(x.to(device))
        loss = getattr(out, "full_tensor", lambda: out)().pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return losses
def batches(steps, *shape, of=rank):
    return [batch(step, *shape, of=of) for step in range(steps)]
class Block(nn.Module):
    def __init__(self, wide=32):
        super().__init__()
        self.norm = nn.LayerNorm(16)
        self.up, self.down = nn.Linear(16, wide), nn.Linear(wide, 16)
    def forward(self, x):
        return self.down(torch.relu(self.up(self.norm(x))))
def both(train, *args, by=1e-5, what="", **more):
    cpu, npu = (train(device, *args, **more) for device in ("cpu", "npu"))
    near(cpu, npu, by, what)
    return npu
"""
OPTIONS = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 32), nn.Linear(32, 4)
        self.norm, self.unused = nn.BatchNorm1d(32), nn.Linear(3, 3)
    def forward(self, x):
        return self.b(torch.relu(self.norm(self.a(x))))
def with_options(device, options):
    torch.manual_seed(rank)  # DDP makes them the same
    model = DDP(Net().to(device), **options)
    adam = torch.optim.AdamW(model.parameters(), 0.01)
    return train(model, adam, device, batches(4, 16, 8))
for options in (
    dict(find_unused_parameters=True),
    dict(find_unused_parameters=True, gradient_as_bucket_view=True),
    dict(find_unused_parameters=True, bucket_cap_mb=0.001),
    dict(static_graph=True),
):
    npu = both(with_options, options, what=f"DDP with {options}")
    assert npu[-1] < npu[0]
"""
NO_SYNC = """
def unsynchronized(device):
    model = DDP(net().to(device))
    with model.no_sync():
        model(batch(0, 16, 8).to(device)).sum().backward()
    model(batch(1, 16, 8).to(device)).sum().backward()
    return model.module[2].weight.grad.flatten().tolist()
both(unsynchronized, what="no_sync()")
"""
HOOKED = """
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import (
    PowerSGDState, powerSGD_hook)
def hooked(device, hook):
    model, state = DDP(net().to(device)), None
    if hook is powerSGD_hook:
        state = PowerSGDState(None, 2, start_powerSGD_iter=2)
    # By its name cpu refuses the one of bf16.
    model.register_comm_hook(
        state, hook if device == "npu" else lambda state, bucket: hook(state, bucket))
    sgd = torch.optim.SGD(model.parameters(), 0.1)
    losses = train(model, sgd, device, batches(5, 16, 8))
    return losses + model.module[0].bias.tolist()
# Of more than two ranks gloo rounds each sum of halves, hccl the last.
halves = 1e-5 if size == 2 else 1e-2
for hook, by in (
    (hooks.allreduce_hook, 1e-5),
    (hooks.fp16_compress_hook, halves),
    (hooks.bf16_compress_hook, halves),
    (hooks.bf16_compress_wrapper(hooks.allreduce_hook), halves),
    (powerSGD_hook, 1e-5),
):
    both(hooked, hook, by=by, what=hook.__name__)
"""
UNEVEN = """
def uneven(device):
    model = DDP(net().to(device))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with model.join():
        losses = train(model, optimizer, device, batches(3 + 2 * rank, 16, 8))
    return losses + model.module[2].weight.flatten().tolist()
npu = both(uneven, what="a rank that runs out of data")
assert len(npu) == 3 + 2 * rank + 4 * 33
"""
SHARED_STATE = """
from torch.distributed.optim import ZeroRedundancyOptimizer
def sharded(device):
    model = DDP(net().to(device))
    optimizer = ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=0.01)
    losses = train(model, optimizer, device, batches(4, 16, 8))
    held = [p for group in optimizer.optim.param_groups for p in group["params"]]
    assert 0 < len(held) < 4
    optimizer.consolidate_state_dict(0)
    if rank == 0:
        whole = optimizer.state_dict()["state"]
        assert len(whole) == 4
        losses += [s["exp_avg"].sum().item() for s in whole.values()]
    return losses
both(sharded, what="an optimizer whose state is shared")
"""
# SyncBatchNorm has no kernels for cpu: a batch norm there, unsplit.
NORMED = """
def normed(split):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    if split:
        model = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(model).npu())
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for step in range(3):
        x = batch(step, 16, 3, 4, 4, of=0)
        loss = model(x.chunk(size)[rank].npu() if split else x).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = loss.detach()
        if split:
            dist.all_reduce(loss, dist.ReduceOp.AVG)
        losses.append(loss.item())
    norm = model.module[1] if split else model[1]
    assert isinstance(norm, nn.SyncBatchNorm) is split
    model.eval()
    x = batch(9, 4, 3, 4, 4, of=0)
    out = model(x.npu() if split else x).cpu()
    return losses + norm.running_var.tolist() + out.flatten().tolist()
near(normed(False), normed(True), 1e-4, "a synchronized batch norm")
"""
SPARSE = """
def sparse(device):
    torch.manual_seed(7)
    model = nn.Sequential(
        nn.Embedding(20, 8, sparse=True), nn.Flatten(), nn.Linear(24, 4)).to(device)
    ddp = DDP(model)
    sgd = torch.optim.SGD(ddp.parameters(), 0.1)
    losses = []
    for step in range(5):
        seed = torch.Generator().manual_seed(size * step + rank)
        x = torch.randint(0, 20, (6, 3), generator=seed).to(device)
        loss = ddp(x).square().mean()
        sgd.zero_grad()
        loss.backward()
        assert model[0].weight.grad.is_sparse
        sgd.step()
        losses.append(loss.item())
    return losses + model[0].weight.detach().cpu().flatten().tolist()
both(sparse, what="sparse gradients")
"""
DATA_PARALLEL = OPTIONS + NO_SYNC + HOOKED + UNEVEN + SHARED_STATE + NORMED + SPARSE


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_ddp_trains_as_on_cpu(ranks, size: int):
    ranks(HEAD + DATA_PARALLEL, size)


def test_ddp_knows_how_long_its_steps_took(ranks):
    results = ranks(
        HEAD
        + """
model = DDP(net().npu())
sgd = torch.optim.SGD(model.parameters(), 0.1)
train(model, sgd, "npu", batches(12, 16, 8))
told = model._get_ddp_logging_data()
forward, backward, moving = (
    told[f"avg_{part}_time"]
    for part in ("forward_compute", "backward_compute", "backward_comm"))
assert forward > 0 and 0 < moving, told
# What is communicated ends behind the first gradient, inside of backward.
assert backward >= told["avg_backward_compute_comm_overlap_time"] >= 0, told
"""
    )

    for result in results:
        assert "Time stats" not in result.stderr


SHARDED = """
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions, set_model_state_dict)
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy
def half(**more):
    return MixedPrecisionPolicy(torch.bfloat16, **more)
def train_sharded(device, meta=False, clip=False, accumulate=1, **options):
    mesh = init_device_mesh(device, (size,))
    whole = net()
    with torch.device("meta" if meta else device):
        model = net()
    for part in (model[0], model):
        fully_shard(part, mesh=mesh, **options)
    on_host = "offload_policy" in options
    if meta:
        model.to_empty(device="cpu" if on_host else device)
    # From rank 0 alone: the others have other numbers.
    state = whole.state_dict() if rank == 0 else {}
    set_model_state_dict(model, state, options=StateDictOptions(
        full_state_dict=True, broadcast_from_rank0=True, cpu_offload=on_host))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    told = []
    for step in range(4):
        model.set_requires_gradient_sync((step + 1) % accumulate == 0)
        out = model(batch(step, 8, 8).to(device))
        assert out.dtype == getattr(
            options.get("mp_policy"), "param_dtype", torch.float32)
        loss = out.float().pow(2).mean()
        loss.backward()
        if clip:
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            told.append(norm.full_tensor().item())
        if (step + 1) % accumulate == 0:
            held = model[0].weight.to_local()
            assert held.device.type == ("cpu" if on_host else device)
            assert len(held) == len(torch.arange(33).chunk(size)[rank])
            optimizer.step()
            optimizer.zero_grad()
        told.append(loss.item())
    return told
for way in (
    dict(),
    dict(reshard_after_forward=False, clip=True),
    dict(accumulate=2),
    dict(meta=True),
    dict(offload_policy=CPUOffloadPolicy()),
    dict(by=1e-2, mp_policy=half(reduce_dtype=torch.float32)),
    dict(by=1e-2, mp_policy=half(reduce_dtype=torch.bfloat16)),
):
    both(train_sharded, what=f"fully_shard with {way}", **way)
"""


@pytest.mark.parametrize("size", [2, pytest.param(4, marks=pytest.mark.nightly)])
def test_a_sharded_model_trains_as_on_cpu(ranks, size: int):
    ranks(HEAD + SHARDED, size)


def test_groups_of_a_mesh_share_a_model_in_two_ways(ranks):
    """Four ranks, two by two: sharded and split, and sharded and replicated."""
    ranks(
        HEAD
        + """
def in_groups(device, split):
    mesh = init_device_mesh(device, (2, 2), mesh_dim_names=("a", "b"))
    assert mesh["a"].get_local_rank() == rank // 2
    assert mesh["b"].get_local_rank() == rank % 2
    model = net(32).to(device)
    if split:
        model = parallelize_module(
            model, mesh["b"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
    fully_shard(model, mesh=mesh["a"] if split else mesh)
    adam = torch.optim.AdamW(model.parameters(), 0.01)
    of = rank // 2 if split else rank
    return train(model, adam, device, batches(3, 4, 8, of=of))
for split in (True, False):
    both(in_groups, split)
mesh = init_device_mesh("npu", (2, 2), mesh_dim_names=("a", "b"))
full = torch.arange(32.).reshape(8, 4)
spread = distribute_tensor(full.npu(), mesh, [Shard(0), Shard(1)])
mine = full.chunk(2)[rank // 2].chunk(2, 1)[rank % 2]
assert torch.equal(spread.to_local().cpu(), mine)
other = spread.redistribute(placements=[Replicate(), Shard(0)])
assert torch.equal(other.full_tensor().cpu(), full)
flat = mesh["a", "b"]._flatten("all").get_group()
t = torch.ones(1).npu()
dist.all_reduce(t, group=flat)
assert t.item() == 4
""",
        4,
    )


BLOCK = """
def train_block(device, sequence):
    torch.manual_seed(0)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    if sequence:
        plan = {"norm": SequenceParallel(),
                "up": ColwiseParallel(input_layouts=Shard(1)),
                "down": RowwiseParallel(
                    output_layouts=Shard(1), use_local_output=False)}
    model = parallelize_module(
        Block().to(device), init_device_mesh(device, (size,)), plan)
    # Some of them are no DTensors, which a step of many at once refuses.
    adam = torch.optim.AdamW(model.parameters(), 0.01, foreach=False)
    return train(model, adam, device, batches(4, 4, 8, 16, of=0))
for sequence in (False, True):
    what = f"a block in columns and rows, sequence={sequence}"
    npu = both(train_block, sequence, what=what)
    assert npu[-1] < npu[0]
"""
LAYOUTS = """
from torch.distributed.tensor import DTensor, Partial, randn
mesh = init_device_mesh("npu", (size,))
def spread(t, layout):
    return distribute_tensor(t.npu(), mesh, [layout])
layouts = [Replicate(), Shard(0), Shard(1)]
def part_of(full, dim):
    parts = full.chunk(size, dim)  # the last ranks may have nothing
    return parts[rank] if rank < len(parts) else full.narrow(dim, 0, 0)
for shape in ((8, 6), (7, 5)):  # evenly, and not
    full = torch.arange(float(shape[0] * shape[1])).reshape(shape)
    for before in layouts:
        for after in layouts:
            got = spread(full, before).redistribute(mesh, [after])
            mine = full if after.is_replicate() else part_of(full, after.dim)
            assert got.to_local().device.type == "npu"
            assert torch.equal(got.to_local().cpu(), mine), (before, after)
            assert torch.equal(got.full_tensor().cpu(), full), (before, after)
    last = size - 1
    results = {"sum": size * (full + last / 2), "avg": full + last / 2,
               "max": full + last}
    for kind, wanted in results.items():
        for after in layouts:
            part = DTensor.from_local((full + rank).npu(), mesh, [Partial(kind)])
            got = part.redistribute(mesh, [after]).full_tensor().cpu()
            assert torch.equal(got, wanted), (kind, after)
a, b = torch.arange(24.).reshape(4, 6), torch.arange(30.).reshape(6, 5)
product = spread(a, Shard(1)) @ spread(b, Shard(0))
assert product.placements[0].is_partial()
assert torch.equal(product.full_tensor().cpu(), a @ b)
# Each shard draws its own numbers, all replicas the same.
torch.manual_seed(7)
drawn = randn((8, 4), device_mesh=mesh, placements=[Shard(0)]).full_tensor().cpu()
drawn = drawn.chunk(size)
for i in range(size):
    assert not any(torch.equal(drawn[i], other) for other in drawn[:i])
drawn = randn((8, 4), device_mesh=mesh, placements=[Replicate()]).to_local()
every = [torch.empty_like(drawn) for _ in range(size)]
dist.all_gather(every, drawn)
assert all(torch.equal(other.cpu(), every[0].cpu()) for other in every)
logits, target = batch(3, 6, 10, of=0), torch.tensor([0, 9, 4, 5, 2, 7])
x = spread(logits, Shard(1)).requires_grad_()
with loss_parallel():
    loss = nn.functional.cross_entropy(x, target.npu())
    loss.backward()
logits.requires_grad_()
wanted = nn.functional.cross_entropy(logits, target)
wanted.backward()
near([wanted.item()], [loss.full_tensor().item()])
torch.testing.assert_close(x.grad.full_tensor().cpu(), logits.grad)
"""
# Microbatches of a stage on each rank, and of two on each, in turn.
PIPES = """
import copy
from torch.distributed.pipelining import (
    PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B)
torch.manual_seed(0)
layers = [nn.Sequential(nn.Linear(8, 8), nn.Tanh()) for _ in range(2 * size)]
def piped(device, schedule):
    parts = copy.deepcopy(layers)
    if schedule is ScheduleInterleaved1F1B:
        mine, stages = {i: parts[i] for i in (rank, rank + size)}, 2 * size
    else:
        mine, stages = {rank: nn.Sequential(*parts[2 * rank:2 * rank + 2])}, size
    on = torch.device(device)
    mine = {i: part.to(on) for i, part in mine.items()}
    made = [PipelineStage(part, i, stages, on) for i, part in mine.items()]
    run = schedule(made if len(made) > 1 else made[0], n_microbatches=4,
                   loss_fn=lambda out, wanted: (out - wanted).pow(2).mean())
    parameters = [p for part in mine.values() for p in part.parameters()]
    optimizer = torch.optim.SGD(parameters, 0.1)
    told = []
    for step in range(3):
        optimizer.zero_grad()
        losses = []
        wanted = {"target": batch(step, 8, 8, of=1).to(on), "losses": losses}
        run.step(*([batch(step, 8, 8, of=0).to(on)] if 0 in mine else []),
                 **(wanted if stages - 1 in mine else {}))
        optimizer.step()
        told += [loss.item() for loss in losses]
    return told, [p.detach().cpu() for p in parameters]
for schedule in (ScheduleGPipe, Schedule1F1B, ScheduleInterleaved1F1B):
    (cpu, by_cpu), (npu, by_npu) = piped("cpu", schedule), piped("npu", schedule)
    near(cpu, npu, what=schedule)
    # Of the last stage, by microbatch.
    assert len(npu) == (12 if rank == size - 1 else 0)
    torch.testing.assert_close(by_npu, by_cpu)
"""


@pytest.mark.parametrize("size", [pytest.param(2, marks=pytest.mark.nightly), 4])
def test_a_model_that_is_split_trains_as_on_cpu(ranks, size: int):
    ranks(HEAD + BLOCK + LAYOUTS + PIPES, size)


FUNCTIONS = """
import torch.distributed._functional_collectives as calls
join("cpu:gloo,npu:hccl")
def f(x, group):
    y = x * 2
    reduced = calls.all_reduce(y, "sum", group)
    gathered = calls.all_gather_single(y, 0, group)
    scattered = calls.reduce_scatter_single(gathered, "avg", 0, group)
    swapped = calls.all_to_all_single(gathered, None, None, group)
    told = calls.broadcast(y, 1, group)
    both = calls.all_reduce_coalesced([x, x + 1], "max", group)
    return reduced + 1, gathered * 3, scattered - 1, swapped * 2, told + 1, *both
def given(r):
    return torch.arange(6.).reshape(2, 3) + r
# Of two ranks, as the definitions say.
y = [2 * given(r) for r in range(2)]
whole = torch.cat(y)
wanted = (y[0] + y[1] + 1, whole * 3, whole.chunk(2)[rank] - 1,
          torch.cat([whole.chunk(2)[rank]] * 2) * 2, y[1] + 1, given(1), given(1) + 1)
"""


@pytest.mark.parametrize(
    "backend",
    # Steps of many ranks are compiled by Inductor below, collectives included.
    ["aot_eager", pytest.param("inductor", marks=pytest.mark.nightly)],
)
def test_functional_collectives_are_compiled(ranks, backend: str):
    ranks(
        FUNCTIONS
        + f"compiled = torch.compile(f, backend={backend!r}, fullgraph=True)"
        + """
for _ in range(2):
    got = compiled(given(rank).npu(), dist.group.WORLD)
    for a, b in zip(got, wanted, strict=True):
        assert a.device.type == "npu"
        torch.testing.assert_close(a.cpu(), b)
"""
    )


COMPILED = (
    HEAD
    + """
import contextlib
from torch._dynamo import compiled_autograd
from torch._dynamo.utils import counters
def in_buckets(device):  # of which it takes three
    return DDP(Block(20000).to(device), bucket_cap_mb=1)
def sharded(device):
    model = Block(33).to(device)
    mesh = init_device_mesh(device, (size,))
    for part in (model.up, model):
        fully_shard(part, mesh=mesh)
    return model
def in_columns(device):
    # Sharded between them: all_gather and reduce_scatter are in the graph.
    plan = {"norm": SequenceParallel(),
            "up": ColwiseParallel(input_layouts=Shard(1)),
            "down": RowwiseParallel(output_layouts=Shard(1))}
    mesh = init_device_mesh(device, (size,))
    return parallelize_module(Block(32).to(device), mesh, plan)
def losses(device, make, of, options=None):
    torch.manual_seed(0)
    model = make(device)
    if options is not None:
        model = torch.compile(model, **options)
    # Some parameters are no DTensors, which a step of many at once refuses.
    sgd = torch.optim.SGD(model.parameters(), 1e-2, foreach=False)
    return train(model, sgd, device, batches(3, 4, 8, 16, of=of))
def compare(make, of=rank, graphs=1, ddp="ddp_optimizer", **options):
    wanted = losses("cpu", make, of)
    torch._dynamo.reset()
    counters.clear()
    backward = contextlib.nullcontext()
    if ddp == "python_reducer":  # DDP's collectives are in the graph of backward
        backward = compiled_autograd._enable(torch.compile)
    with torch._dynamo.config.patch(optimize_ddp=ddp), backward:
        near(wanted, losses("npu", make, of, options))
    assert counters["aot_autograd"]["ok"] >= graphs, counters["aot_autograd"]
"""
)
COMPILED_STEPS = """
compare(in_buckets, graphs=3{options})  # cut where a bucket ends
compare(sharded{options})
"""


def test_compiled_steps_of_many_ranks_give_the_losses_of_cpu(ranks):
    """Cut where collectives are; at night Inductor makes the kernels, too."""
    ranks(COMPILED + COMPILED_STEPS.format(options=", backend='aot_eager'"))


@pytest.mark.nightly
def test_compiled_steps_of_four_ranks_give_the_losses_of_cpu(ranks):
    ranks(COMPILED + COMPILED_STEPS.format(options="") + "compare(in_columns, 0)", 4)


@pytest.mark.nightly
def test_ddp_is_compiled_in_each_of_its_ways(ranks):
    """As one graph, collectives in the graph of backward, and as a replay."""
    ranks(
        COMPILED
        + """
compare(in_buckets, ddp="no_optimization")
compare(in_buckets, ddp="python_reducer")
assert counters["compiled_autograd"]["captures"] > 0, counters
compare(in_buckets, mode="reduce-overhead")
compare(sharded, mode="reduce-overhead")
compare(in_columns, 0, mode="reduce-overhead")
"""
    )


@pytest.mark.nightly
@pytest.mark.parametrize("blocking", ["0", "1"])
def test_compiled_steps_run_where_they_are_launched(ranks, blocking: str):
    """On another device, on another stream, and with a host that waits."""
    ranks(
        COMPILED
        + """
torch.npu.set_device(1)
with torch.npu.stream(torch.npu.Stream()):
    compare(in_buckets, graphs=3)
    compare(sharded)
    compare(in_columns, 0)
""",
        ASCEND_LAUNCH_BLOCKING=blocking,
        NPU_DISPATCH_DEVICES="2",
    )


CHECKPOINTS = (
    HEAD
    + """
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
def made(seed):
    model = net(seed=seed).npu()
    fully_shard(model, mesh=init_device_mesh("npu", (size,)))
    optimizer = torch.optim.AdamW(model.parameters(), 0.01)
    train(model, optimizer, "npu", batches(2, 4, 8, of=0))
    return model, optimizer
def values(model, optimizer):
    model, optimizer = get_state_dict(model, optimizer)
    tensors = dict(model)
    for name, state in optimizer["state"].items():
        tensors |= {f"{name}.{key}": t for key, t in state.items()}
    return {name: getattr(t, "full_tensor", lambda t=t: t)().cpu()
            for name, t in tensors.items()}
def states(model, optimizer):
    return dict(zip(("model", "optimizer"), get_state_dict(model, optimizer)))
def load(model, optimizer, path):
    loaded = states(model, optimizer)
    dcp.load(loaded, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=loaded["model"],
                   optim_state_dict=loaded["optimizer"])
def same(got, wanted):
    assert got.keys() == wanted.keys() and len(got) == 16
    assert all(torch.equal(got[name], wanted[name]) for name in wanted)
"""
)


def test_what_two_ranks_saved_is_loaded_by_four_and_by_one(ranks, tmp_path):
    path = str(tmp_path / "saved")
    ranks(
        CHECKPOINTS
        + f"""
trained = made(0)
dcp.save(states(*trained), checkpoint_id={path!r})
whole = values(*trained)
if rank == 0:
    torch.save(whole, {path + ".whole"!r})
"""
    )

    for size in (4, 1):
        ranks(
            CHECKPOINTS
            + f"""
other = made(1)
load(*other, {path!r})
same(values(*other), torch.load({path + ".whole"!r}))
""",
            size,
        )


@pytest.mark.parametrize("stager", ["None", "DefaultStager()"])
def test_what_is_saved_meanwhile_is_what_it_was(ranks, stager: str):
    """The model goes on as soon as its state has been copied."""
    ranks(
        CHECKPOINTS
        + f"""
from concurrent.futures import Future
from torch.distributed.checkpoint.staging import DefaultStager
stager = {stager}
"""
        + """
model, optimizer = trained = made(0)
whole = values(*trained)
path = sys.argv[3] + "async"
saving = dcp.async_save(states(*trained), checkpoint_id=path, async_stager=stager)
if not isinstance(saving, Future):
    saving.staging_completion.result()
    saving = saving.upload_completion
with torch.no_grad():
    for parameter in model.parameters():
        parameter.zero_()
assert values(*trained)["0.weight"].eq(0).all()
saving.result()
load(*trained, path)
same(values(*trained), whole)
if stager:
    stager.close()
"""
    )


PINNED_AND_SHARED = """
import sys, torch
import torch.multiprocessing
from torch.distributed._state_dict_utils import _create_cpu_state_dict
x = torch.arange(5000.0, device="npu")
host = _create_cpu_state_dict({"x": x}, pin_memory=True, share_memory=True)["x"]
assert host.is_shared()
host.zero_()
gate = torch.npu.ExternalEvent()
gate.wait(torch.npu.current_stream())
host.copy_(x, non_blocking=True)  # queued, as to any pinned memory
assert not torch.npu.current_stream().query()
gate.record(torch.npu.Stream())
torch.npu.synchronize()
assert host.equal(x.cpu())
host.copy_(x, non_blocking=True)
del host  # the copy is done before the memory goes away
kept = _create_cpu_state_dict({"x": x}, pin_memory=True, share_memory=True)
try:
    torch.cuda._pin_memory_utils.pin_memory(kept["x"].data_ptr(), 100)
except RuntimeError as error:
    print(error)
"""


def test_a_state_dict_is_pinned_and_shared(python) -> None:
    done = python(PINNED_AND_SHARED)

    assert "is pinned already" in done.stdout
    assert "Error" not in done.stderr
