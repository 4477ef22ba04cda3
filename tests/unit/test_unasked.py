"""What is loaded, and published, by those who ask for something else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

MODULES = (
    *("npu_dispatch", "npu_dispatch.stats", "npu_dispatch.metrics"),
    *("npu_dispatch.processes", "npu_dispatch.diagnosis.top"),
    *("npu_dispatch.diagnosis.watchdog", "npu_dispatch.timeline.trace"),
    *("npu_dispatch.service.server", "npu_dispatch.sanitizer"),
    *("npu_dispatch.cli", "pytest_npu_dispatch"),
)
HEAVY = {"torch", "jinja2", "perfetto", "psutil"}
COMMANDS = (["--help"], ["ps"], ["top", "--once", "--interval", "0"], ["serve", "-h"])


@pytest.mark.parametrize("module", MODULES)
def test_importing_it_loads_no_torch(fresh_python, module: str):
    code = f"import sys, {module}; print('torch' in sys.modules)"

    assert fresh_python(code).stdout.strip() == "False"


@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_a_command_that_watches_loads_nothing_heavy(fresh_python, args: list[str]):
    code = f"""
import sys
from npu_dispatch.cli import main
main({args!r}, standalone_mode=False)
print("loaded:", *{HEAVY!r} & sys.modules.keys())
"""
    assert fresh_python(code).stdout.splitlines()[-1] == "loaded:"


@pytest.mark.parametrize("command", ["run", "sanitize"])
def test_a_command_that_runs_a_script_has_the_device(
    fresh_python, tmp_path: Path, command: str
):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\nprint('sum', torch.ones(2, device='npu').sum().item())\n"
    )
    code = f"""
from npu_dispatch.cli import main
main([{command!r}, {str(script)!r}])
"""
    assert "sum 2.0" in fresh_python(code).stdout


def test_the_device_modules_load_torch_and_register(fresh_python):
    for first in ("npu_dispatch.npu", "npu_dispatch.npu.streams", "npu_dispatch.aio"):
        code = f"import {first}, torch; print(torch.ones(2, device='npu').sum().item())"

        assert fresh_python(code).stdout.strip() == "2.0", first


def test_a_process_that_only_imported_torch_publishes_nothing(fresh_python):
    code = """
import os, torch, npu_dispatch
from npu_dispatch.stats import segment_file
print("registered:", npu_dispatch.is_registered())
print("mine:", segment_file().exists())
"""
    said = fresh_python(code, TORCH_NPU_SANITIZER="0").stdout
    assert said.splitlines() == ["registered: True", "mine: False"]


def test_one_reader_of_proc_stat_agrees_with_the_kernel():
    from npu_dispatch.system.proc_stat import has_ended, process_start, stat_fields

    text = Path("/proc/self/stat").read_text()
    start = int(re.sub(r".*\)", "", text).split()[19])
    assert process_start(os.getpid()) == start
    assert not has_ended(os.getpid())
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert has_ended(child)  # a zombie
    assert process_start(child) == 0
    os.waitpid(child, 0)
    assert has_ended(child)
    assert stat_fields(child) == []
