"""The examples train, and cpu and npu agree."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def example(python):
    def run(script: str, *args: str) -> str:
        result = python.run(str(EXAMPLES / script), *args, timeout=170)
        assert result.returncode == 0, result.stderr
        return result.stdout

    return run


def losses(path: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


def train(example, log: Path, *args: str) -> list[float]:
    example("train_gpt.py", "--size", "tiny", "--sample", "0", "--log", str(log), *args)
    return losses(log)


def test_gpt_learns_the_same_on_both_devices(example, tmp_path: Path):
    cpu = train(example, tmp_path / "cpu", "--device", "cpu", "--steps", "20")
    npu = train(example, tmp_path / "npu", "--device", "npu", "--steps", "20")

    assert npu == pytest.approx(cpu, rel=1e-5)
    assert npu[-1] < npu[0]


def test_a_resumed_run_goes_on_where_it_stopped(example, tmp_path: Path):
    whole = train(example, tmp_path / "whole", "--steps", "12")
    keep = ("--checkpoint", str(tmp_path / "checkpoint"))

    train(example, tmp_path / "parts", "--steps", "6", *keep)
    parts = train(example, tmp_path / "parts", "--steps", "12", "--resume", *keep)

    assert parts == pytest.approx(whole, rel=1e-6)


def test_gpt_writes_text(example):
    text = example("train_gpt.py", "--size", "tiny", "--steps", "2", "--sample", "20")

    assert text.startswith("def ")


def test_digits_are_recognised(example):
    text = example("train_digits.py", "--device", "npu", "--epochs", "3")

    assert float(re.search(r"accuracy (\S+)", text)[1]) > 0.85


def test_the_demo_leaves_a_picture(example, tmp_path: Path):
    example("demo.py", "--steps", "20")

    assert (tmp_path / "out" / "demo.png").read_bytes().startswith(b"\x89PNG")
