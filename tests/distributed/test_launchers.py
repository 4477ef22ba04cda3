"""torchrun starts ranks, also again and on two nodes, and the example learns."""

import json
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from doc_examples import example
from interpreter import environment
from prometheus_server import free_port
from torch.distributed.run import get_args_parser

ROOT = Path(__file__).resolve().parents[2]
SERVICE, JOB = yaml.safe_load_all(example(ROOT / "docs" / "deployment.md", "job"))
POD = JOB["spec"]["template"]["spec"]
[TRAINER] = POD["containers"]


def asked(*more: str) -> Any:
    """Return what torchrun makes of the container's command."""
    command, *arguments = TRAINER["command"]
    assert command == "torchrun"
    return get_args_parser().parse_args([*more, *arguments])


def test_kubernetes_knows_every_field():
    for version in ("1.30", "1.35"):
        for thing in (SERVICE, JOB):
            kubernetes_validate.validate(thing, version, strict=True)


def test_the_pods_meet_where_the_service_says():
    spec, name = JOB["spec"], JOB["metadata"]["name"]

    # Kubernetes gives a Job's pods that label, and names them by their index.
    assert SERVICE["spec"]["selector"] == {"job-name": name}
    assert SERVICE["spec"]["clusterIP"] == "None"
    assert asked().master_addr == f"{name}-0.{POD['subdomain']}"
    assert POD["subdomain"] == SERVICE["metadata"]["name"]
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == int(asked().nnodes)


def test_torchrun_reads_the_nodes_number_from_the_environment(monkeypatch):
    [rank] = [e for e in TRAINER["env"] if "job-completion-index" in str(e)]
    monkeypatch.setenv(rank["name"], "1")

    assert asked().node_rank == 1


@pytest.mark.nightly
def test_two_nodes_run_the_command(fresh_python, tmp_path):
    arguments = [
        *TRAINER["command"][1:-1],
        "--master-addr=127.0.0.1",
        f"--master-port={free_port()}",
        TRAINER["command"][-1],
        *("--steps", "4"),
    ]
    nodes = [
        fresh_python.start(
            *("-m", "torch.distributed.run", *arguments),
            env=environment(PET_NODE_RANK=str(node), OMP_NUM_THREADS="1"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        for node in range(2)
    ]
    said = [node.communicate(timeout=170) for node in nodes]

    assert [node.returncode for node in nodes] == [0, 0], said
    assert "4 ranks on npu" in said[0][0]


EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_ddp.py"
RUN = f"""
import functools, runpy
sys.path.insert(0, {str(EXAMPLE.parent)!r})
join_by_file = functools.partial(
    dist.init_process_group, init_method="file://" + sys.argv[3],
    rank=rank, world_size=size)
dist.init_process_group = join_by_file
sys.argv[1:] = ["--steps", "4", "--device", DEVICE, "--losses", LOG]
runpy.run_path({str(EXAMPLE)!r}, run_name="__main__")
"""


def test_two_processes_learn_what_they_learn_on_cpu(ranks, tmp_path):
    losses = {}
    for device in ("npu", "cpu"):
        log = tmp_path / device
        ranks(RUN.replace("DEVICE", repr(device)).replace("LOG", repr(str(log))))
        lines = log.read_text().splitlines()
        losses[device] = [json.loads(line)["loss"] for line in lines]

    assert len(losses["npu"]) == 4 and losses["npu"][-1] < losses["npu"][0]
    assert losses["npu"] == pytest.approx(losses["cpu"], rel=1e-4)


WORKER = """
import os, signal, sys
from datetime import timedelta
import torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("cpu:gloo,npu:hccl", timeout=timedelta(seconds=40))
rank, start = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
t = torch.full((3,), rank + 1.).npu()
dist.all_reduce(t)
assert t.tolist() == [3, 3, 3]
t = torch.ones(1)  # by gloo, which has the same store
dist.all_reduce(t)
assert t.item() == 2
os.write(1, f"start {start} rank {rank}\\n".encode())  # in one piece
dist.all_reduce(torch.ones(1))  # when both have said so: torchrun ends the other
if start == 0:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(1).npu())
    torch.npu.synchronize()  # raises: rank 1 is lost
dist.destroy_process_group()
os.write(1, f"end {start} rank {rank}\\n".encode())
"""


def test_killed_ranks_are_started_again_and_join(fresh_python, tmp_path):
    worker = tmp_path / "worker.py"
    worker.write_text(WORKER)

    done = fresh_python.run(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *("--max-restarts", "1", "--monitor-interval", "0.1", str(worker)),
    )

    assert done.returncode == 0, done.stderr
    lines = sorted(done.stdout.splitlines())
    assert lines == [
        "end 1 rank 0",
        "end 1 rank 1",
        "start 0 rank 0",
        "start 0 rank 1",
        "start 1 rank 0",
        "start 1 rank 1",
    ]


def test_words_that_dead_ranks_left_are_not_taken_for_the_living(ranks):
    """Rank 0 first, last, and with all that an earlier start had written."""
    ranks(
        """
        import threading
        from npu_dispatch.distributed._rejoin import store_of_this_start
        join("gloo")
        store = dist.FileStore(sys.argv[3] + "kept", size)
        names = set()
        for first in (0, 1, 2, 0):
            if rank != first:  # comes when that one has called
                dist.barrier()
            else:
                called = threading.Timer(0, dist.barrier)
                called.start()
            part = store_of_this_start(store, rank, size, timedelta(seconds=30))
            if rank == first:
                called.join()
            part.set(f"at/{rank}", "here")
            for r in range(size):
                assert part.get(f"at/{r}") == b"here"
            assert part.add("joined", 1) <= size
            words = [None] * size
            dist.all_gather_object(words, store.get("npu_dispatch/start/welcome/1"))
            names.add(words[0].split()[1])
        assert len(names) == 4
        if rank == 2:
            raises(dist.DistStoreError, "waited in vain for rank 0",
                   store_of_this_start, store, rank, size, timedelta(seconds=0.1))
        dist.barrier()
        """,
        3,
    )
