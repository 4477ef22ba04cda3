"""`npu-dispatch calibrate`: a sheet of this machine, for `plan`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from click.testing import CliRunner

from npu_dispatch.cli import main
from npu_dispatch.plan import bystanders, calibrate, probes
from npu_dispatch.plan.bystanders import Bystanders, share_of_others
from npu_dispatch.plan.sheet import load


@pytest.mark.nightly
def test_filters_of_one_channel_are_the_furthest_from_the_peak() -> None:
    parts = calibrate.measure()

    assert 0 < parts["depthwise"] < parts["convolution"]


def test_its_sheet_is_one_that_plan_takes(monkeypatch, tmp_path: Path) -> None:
    """Each figure is measured, but once: how large they are is the machine's."""
    monkeypatch.setattr(probes, "_LEAST_S", 0.0)
    monkeypatch.setattr(probes, "_REPEATS", 2)
    monkeypatch.setattr(probes, "_TRIPS", 10)
    path = tmp_path / "new" / "cpu.toml"

    done = CliRunner().invoke(main, ["calibrate", str(path), "--name", "here"])

    assert done.exit_code == 0, done.output
    sheet = load(str(path))
    assert sheet.name == "here"
    for table in ("memory", "tflops", "link"):
        assert all(value > 0 for value in sheet.numbers[table].values()), table
    assert all(value >= 0 for value in sheet.numbers["latency_us"].values())
    assert all(0 < part <= 1 for part in sheet.numbers["efficiency"].values())
    memory = torch.npu.get_device_properties(0).total_memory / 2**30
    assert sheet.numbers["memory"]["gib"] == pytest.approx(memory, rel=0.1)
    assert not re.search(r"= nan|= inf", path.read_text())


def stat(*seconds: float) -> Any:
    return type(psutil.cpu_times())(*seconds, 7, 7)


BEFORE = stat(100, 10, 50, 1000, 20, 1, 2, 5)
# 100 more: 40 user, 10 nice, 5 system, 20 idle, 10 iowait, 5 irq, 5 soft, 5 steal.
AFTER = stat(140, 20, 55, 1020, 30, 6, 7, 10)


def test_what_others_take_is_all_that_is_neither_idle_nor_own(monkeypatch) -> None:
    for own_seconds, share in ((0, 0.70), (30, 0.40), (80, 0)):
        assert share_of_others(BEFORE, AFTER, own_seconds) == pytest.approx(share)
    assert share_of_others(BEFORE, BEFORE, 0) == 0

    counters = iter((BEFORE, AFTER))
    monkeypatch.setattr(bystanders.psutil, "cpu_times", lambda: next(counters))
    own = iter((5.0, 35.0))
    times = lambda: type("Times", (), {"user": next(own), "system": 1.0})  # noqa: E731
    monkeypatch.setattr(bystanders.os, "times", times)
    assert Bystanders().share() == pytest.approx(0.40)
