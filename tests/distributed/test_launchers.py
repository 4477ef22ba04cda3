"""What docs/launchers.md has Kubernetes start, as far as it goes without a cluster."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from doc_examples import example
from interpreter import environment
from torch.distributed.run import get_args_parser

ROOT = Path(__file__).resolve().parents[2]
SERVICE, JOB = yaml.safe_load_all(example(ROOT / "docs" / "launchers.md", "job"))
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
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    arguments = [
        *TRAINER["command"][1:-1],
        "--master-addr=127.0.0.1",
        f"--master-port={port}",
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
