"""examples/train_ddp.py, under torchrun."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "train_ddp.py"


def losses(python: Any, device: str, log: Path) -> list[float]:
    python.run(
        *("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"),
        *(str(EXAMPLE), "--steps", "4", "--device", device, "--losses", str(log)),
    )
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def test_two_processes_learn_what_they_learn_on_cpu(fresh_python, tmp_path):
    ours = losses(fresh_python, "npu", tmp_path / "npu")
    gloos = losses(fresh_python, "cpu", tmp_path / "cpu")

    assert len(ours) == 4 and ours[-1] < ours[0]
    assert ours == pytest.approx(gloos, rel=1e-4)
