"""`npu-dispatch calibrate`: a sheet of this machine, for `plan`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from npu_dispatch.plan.sheet import load
from npu_dispatch.system.bystanders import Bystanders, share_of_others


def test_its_sheet_is_one_that_plan_takes(fresh_python, tmp_path: Path) -> None:
    path = tmp_path / "new" / "cpu.toml"

    fresh_python.run("-m", "npu_dispatch", "calibrate", str(path), "--name", "here")

    sheet = load(str(path))
    assert sheet.name == "here"
    for table in ("memory", "tflops", "link"):
        assert all(value > 0 for value in sheet.numbers[table].values()), table
    # Between a launch and its start, and an end and the host: microseconds.
    assert 0 < sheet.numbers["latency_us"]["launch"] < 1000
    assert 0 <= sheet.numbers["latency_us"]["complete"] < 1000
    # Filters of one channel are the furthest from the peak.
    parts = sheet.numbers["efficiency"]
    assert 0 < parts["depthwise"] < parts["convolution"]
    assert 0 < parts["attention"] <= 1
    # Two orders of magnitude around what a core does.
    assert 0.001 < sheet.numbers["tflops"]["fp32"] < 1 * (os.cpu_count() or 1)
    memory = torch.npu.get_device_properties(0).total_memory / 2**30
    assert sheet.numbers["memory"]["gib"] == pytest.approx(memory, rel=0.1)


def stat(*seconds: float) -> Any:
    return type(psutil.cpu_times())(*seconds, 7, 7)


def test_what_others_take_is_all_that_is_neither_idle_nor_own() -> None:
    before = stat(100, 10, 50, 1000, 20, 1, 2, 5)
    # 100 more: 40 user, 10 nice, 5 system, 20 idle, 10 iowait, 5 irq, 5 soft, 5 steal.
    after = stat(140, 20, 55, 1020, 30, 6, 7, 10)
    assert share_of_others(before, after, 0) == pytest.approx(0.70)
    assert share_of_others(before, after, 30) == pytest.approx(0.40)
    assert share_of_others(before, after, 80) == 0
    assert share_of_others(before, before, 0) == 0


def test_a_process_that_computes_beside_is_seen() -> None:
    cpus = len(re.findall(r"^cpu\d", Path("/proc/stat").read_text(), re.M))
    began, bystanders = time.monotonic(), Bystanders()
    code = "import time\nwhile time.process_time() < 0.5: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
    share = bystanders.share()
    # Half of what it computed, as the clock of /proc/stat is coarse.
    assert share > 0.25 / (cpus * (time.monotonic() - began))
