"""A program that is planned, for the tests of `npu-dispatch plan`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

SHEET = """
name = "test"
source = "this test"
date = "2026"
[memory]
gib = 1
gb_per_s = {rate}
[tflops]
fp64 = 1
fp32 = {rate}
fp16 = 40
int8 = 80
[link]
gb_per_s = 10
[latency_us]
launch = 5
kernel = 1
complete = 5
"""


@pytest.fixture
def planned(python, child_environment, tmp_path: Path):
    """Plan a program for a device with that rate, in GB/s and TFLOP/s.

    Returns the finished process, and the reports or None.
    """

    def run(program: str, rate: float, *options: str):
        script, out = tmp_path / "script.py", tmp_path / "plan.json"
        script.write_text(program)
        sheet = tmp_path / "sheet.toml"
        sheet.write_text(SHEET.format(rate=rate))
        command = ["-m", "npu_dispatch", "plan", "--device", str(sheet), "--json"]
        done = python.run(
            *(*command, str(out), "--steps", "10"),
            *options,
            str(script),
            env=child_environment(COLUMNS="200"),
        )
        return done, json.loads(out.read_text())["reports"] if out.is_file() else None

    return run
