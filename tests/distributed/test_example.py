"""examples/train_ddp.py, on two ranks; test_launchers.py starts it with torchrun."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

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
