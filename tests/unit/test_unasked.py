"""What is loaded by those who ask for something else."""

from __future__ import annotations

import os
import re
from pathlib import Path

MODULES = (
    *("npu_dispatch", "npu_dispatch.observe.segment", "npu_dispatch.metrics"),
    *("npu_dispatch.observe.segment.listing", "npu_dispatch.observe.judge.top"),
    *("npu_dispatch.observe.judge.watchdog", "npu_dispatch.observe.trace.trace"),
    *("npu_dispatch.observe.serve.server", "npu_dispatch.sanitizer"),
    *("npu_dispatch.cli", "pytest_npu_dispatch"),
)
HEAVY = {"torch", "jinja2", "perfetto", "psutil"}
COMMANDS = (["--help"], ["ps"], ["top", "--once", "--interval", "0"], ["serve", "-h"])
# Runs each line in a child of a process that has loaded nothing, and says which of
# the modules that matter it has loaded.
EACH = """
import os, re, sys
for line in sys.argv[2:]:
    sys.stdout.flush()
    if not os.fork():
        exec(line)
        found = sorted(m for m in sys.modules if re.fullmatch(sys.argv[1], m))
        print("loaded:", *found, flush=True)
        os._exit(0)
    os.wait()
"""


def loaded(fresh_python, pattern: str, lines: list[str]) -> dict[str, str]:
    """Return what each line of Python has loaded of the modules of that pattern."""
    said = fresh_python(EACH, pattern, *lines).stdout.splitlines()
    told = [one.removeprefix("loaded:") for one in said if one.startswith("loaded:")]
    return {line: found.strip() for line, found in zip(lines, told, strict=True)}


def run(arguments: list[str]) -> str:
    return f"import npu_dispatch.cli as c; c.main({arguments}, standalone_mode=False)"


def test_modules_that_need_no_device_load_no_torch(fresh_python):
    found = loaded(fresh_python, "torch", [f"import {module}" for module in MODULES])

    assert {line: torch for line, torch in found.items() if torch} == {}


def test_commands_that_watch_load_nothing_heavy(fresh_python):
    found = loaded(fresh_python, "|".join(HEAVY), [run(args) for args in COMMANDS])

    assert {line: heavy for line, heavy in found.items() if heavy} == {}


def test_the_help_loads_none_of_the_commands(fresh_python):
    [ours] = loaded(fresh_python, r"npu_dispatch\..*", [run(["--help"])]).values()

    assert ours == "npu_dispatch.cli npu_dispatch.cli.group"


def test_one_reader_of_proc_stat_agrees_with_the_kernel():
    from npu_dispatch.observe.segment.proc_stat import (
        has_ended,
        process_start,
        stat_fields,
    )

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
