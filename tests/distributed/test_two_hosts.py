"""Ranks on two hosts: they train as one, and each learns soon what went wrong."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from interpreter import environment
from two_hosts import CABLE, NAMES, TwoHosts, skip_without_hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[TwoHosts]:
    skip_without_hosts()
    with TwoHosts(tmp_path) as both:
        yield both


# Ranks 0 and 1 on the first host, 2 and 3 on the second. Each waits in a group
# that has neither the other host's ranks nor those that are lost.
WAITS = """
import signal
enter(rank // 2)
os.environ.update(MASTER_ADDR="one", MASTER_PORT="29400")
dist.init_process_group(rank=rank, world_size=size)
lost = {lost}
groups = [dist.new_group(ranks) for ranks in {groups}]
mine, = [group for group in groups if dist.get_rank(group) >= 0]
t = torch.ones(3).npu()
dist.all_reduce(t, group=mine)
torch.npu.synchronize()
store = store()
if rank == lost:
    store.wait([f"waits{{r}}" for r in range(size) if r != rank])
    os.kill(os.getpid(), signal.SIGKILL)
# Nobody sends it.
ranks = dist.get_process_group_ranks(mine)
source = ranks[(ranks.index(rank) + 1) % len(ranks)]
work = dist.irecv(t, source, group=mine)
store.set(f"waits{{rank}}", "1")
if {all_wait}:
    store.wait([f"waits{{r}}" for r in range(size)])
    if rank == 0:
        open(sys.argv[3] + "/waiting", "w").close()
error = failure(work.wait)
recv = error.__cause__ or error  # the wait for it fails, too
assert recv.group == mine.group_name, error
assert (recv.op, recv.rank, recv.seq) == ("hccl:recv", mine.rank(), 0), error
assert "launched at <string>:" in str(recv), error
print(error.lost_rank)
print(error, flush=True)
# Who ends now is lost, too, to those that have not heard of the first one yet.
open(f"{{sys.argv[3]}}heard{{rank}}", "w").close()
others = [f"{{sys.argv[3]}}heard{{r}}" for r in range(size) if r != lost]
while not all(map(os.path.exists, others)):
    pass
os._exit(0)
"""


def waiting(lost: int, groups: list[list[int]]) -> str:
    return WAITS.format(lost=lost, groups=groups, all_wait=lost < 0)


@pytest.mark.parametrize("lost", [0, pytest.param(3, marks=pytest.mark.nightly)])
def test_a_killed_rank_is_named_on_all_others(hosts, ranks, lost):
    others = [rank for rank in range(4) if rank != lost]

    results = ranks(hosts.enter() + waiting(lost, [others, [lost]]), 4, check=False)

    for rank in others:
        assert results[rank].returncode == 0, results[rank].stderr
        named, text = results[rank].stdout.split("\n", 1)
        # By the end of its connection, and not when a host is silent for too long.
        assert int(named) == lost, text
        assert "its process ended" in text, text


@pytest.mark.nightly  # a silent host is waited for, for 10 s
def test_a_cut_cable_is_noticed_by_every_rank(hosts, python, tmp_path):
    from ranks import HEAD

    program = HEAD + hosts.enter() + waiting(-1, [[0, 1], [2, 3]])
    started = [
        python.start("-c", program, str(rank), "4", str(tmp_path),
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for rank in range(4)
    ]  # fmt: skip
    while not (tmp_path / "waiting").exists():
        assert all(process.poll() is None for process in started)

    hosts.cut()

    for rank, process in enumerate(started):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        named, text = out.split("\n", 1)
        assert int(named) in ((2, 3) if rank < 2 else (0,)), text
        assert "its host does not answer" in text, text


def torchrun(
    hosts: TwoHosts, program: Path, ranks: int, *flags: str, elastic: bool = False
) -> list[subprocess.Popen[str]]:
    """Start an agent on each host."""
    started = []
    for host in (0, 1):
        where = ["--node-rank", str(host), "--master-addr", NAMES[0],
                 "--master-port", "29400"]  # fmt: skip
        if elastic:
            # Whose store it is: both names stand for 127.0.1.1 somewhere.
            where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{NAMES[0]}:29400",
                     "--rdzv-conf", f"is_host={host == 0}",
                     "--local-addr", NAMES[host]]  # fmt: skip
        command = (
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"),
            *("--nproc-per-node", str(ranks)),
            *("--monitor-interval", "0.1", *where, *flags, str(program)),
        )
        env = environment(OMP_NUM_THREADS="1", TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")
        pipe = subprocess.PIPE
        started.append(hosts.start(host, *command, env=env, stdout=pipe, stderr=pipe))
    return started


TRAINS = f"""
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
torch.set_num_threads(1)
dist.init_process_group()
os.environ["GLOO_SOCKET_IFNAME"] = "{CABLE}"  # gloo's own choice is 127.0.1.1
judge = dist.new_group(backend="gloo")
rank = dist.get_rank()
def losses(device, group):
    torch.manual_seed(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1))
    model = DDP(model.to(device), process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(rank)).to(device)
    for _ in range(10):
        optimizer.zero_grad()
        loss = model(x).square().mean() + x.mean()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, group=group)
        yield mean.item()
npu = list(losses("npu", dist.group.WORLD))
cpu = list(losses("cpu", judge))
assert all(abs(a - b) <= 1e-5 * max(1, abs(b)) for a, b in zip(npu, cpu)), (npu, cpu)
assert len(npu) == 10 and npu[-1] < npu[0]
os.write(1, f"rank {{rank}} trained\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.nightly  # four interpreters, and a cable of 50 Mbit/s
def test_two_hosts_train_as_gloo_does(hosts, tmp_path):
    program = tmp_path / "train.py"
    program.write_text(TRAINS)
    hosts.slow_down("50mbit")

    said = [agent.communicate() for agent in torchrun(hosts, program, 2)]

    lines = [line for out, _ in said for line in out.splitlines()]
    assert sorted(lines) == [f"rank {rank} trained" for rank in range(4)], said


FAILS = """
import atexit, os, signal, sys
# Before torch: what is registered first is called last, when nothing is waited for.
atexit.register(os.write, 1, b"ended\\n")
import torch, torch.distributed as dist
dist.init_process_group()
t = torch.ones(3).npu()
dist.all_reduce(t)
torch.npu.synchronize()
dist.all_reduce(torch.ones(3).npu(), async_op=True)
if dist.get_rank() == 1:
    # Nobody answers this one, so the end has something to wait for.
    dist.recv(t, 0)
    HOW
dist.recv(t, 1)
torch.npu.synchronize()
"""


@pytest.mark.parametrize(
    "how",
    [
        "sys.exit(1)",
        # On one host test_launchers.py has the first, test_errors.py the second, and
        # test_job_failures.py the last.
        *(
            pytest.param(how, marks=pytest.mark.nightly)
            for how in (
                "os.kill(os.getpid(), signal.SIGKILL)",
                'raise ValueError("its own")',
                "raise SystemExit(1)",
            )
        ),
    ],
)
def test_a_failed_script_ends_the_job(hosts, tmp_path, how):
    program = tmp_path / "fails.py"
    program.write_text(FAILS.replace("HOW", how))

    agents = torchrun(hosts, program, 1)
    said = [agent.communicate() for agent in agents]

    assert [agent.returncode for agent in agents] == [1, 1], said
    ended = [out.splitlines() for out, _ in said]
    assert ended == [["ended"], [] if "SIGKILL" in how else ["ended"]], said
    assert "lost rank 1: its pro" in said[0][1], said


RESTARTS = """
import os, signal
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group()
rank, start = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
t = torch.full((3,), rank + 1.).npu()
dist.all_reduce(t)
assert t.tolist() == [10, 10, 10]
if start == 0:
    dist.barrier()
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.recv(t, (rank + 1) % 3)
    torch.npu.synchronize()  # raises: rank 3 is lost
os.write(1, f"end {start} rank {rank}\\n".encode())
dist.destroy_process_group()
"""


@pytest.mark.nightly
def test_both_hosts_start_the_ranks_again(hosts, tmp_path):
    program = tmp_path / "restarts.py"
    program.write_text(RESTARTS)

    agents = torchrun(hosts, program, 2, "--max-restarts", "2", elastic=True)
    said = [agent.communicate() for agent in agents]

    assert [agent.returncode for agent in agents] == [0, 0], said
    lines = sorted(line for out, _ in said for line in out.splitlines())
    assert [line.split()[2:] for line in lines] == [
        ["rank", str(rank)] for rank in range(4)
    ], said
