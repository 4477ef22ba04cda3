"""Importing: what it registers, loads and costs, and how it fails."""

import importlib.metadata
import os
import re
from pathlib import Path

import pytest

from npu_dispatch.versions import TORCH_VERSION, fits, needed

OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
WRONG_TORCH = "import torch; torch.__version__ = '1.2.3+cpu'; "


@pytest.fixture
def python(importing_python):
    """That imports torch itself, as importing is what is tested."""
    return importing_python


@pytest.fixture
def entry_point(tmp_path: Path, child_environment) -> dict[str, str]:
    """An environment in which torch finds our entry point, installed or not."""
    info = tmp_path / "site" / "npu_dispatch_entry-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: npu_dispatch_entry\n")
    text = "[torch.backends]\nnpu_dispatch_entry = npu_dispatch:_autoload\n"
    (info / "entry_points.txt").write_text(text)
    old = child_environment().get("PYTHONPATH", "")
    return {"PYTHONPATH": f"{info.parent}:{old}"}


def test_the_package_asks_for_the_torch_that_is_checked():
    asked = importlib.metadata.requires("npu_dispatch")

    assert [r for r in asked if re.match(r"torch\b", r)] == [needed()]


@pytest.mark.parametrize(
    ("torch", "works"), [("{0}.9+cpu", True), ("{0}", True), ("2.1.3", False)]
)
def test_a_patch_of_torch_fits_and_another_minor_version_does_not(torch, works):
    minor = ".".join(TORCH_VERSION.split(".")[:2])

    assert fits(torch.format(minor)) == works


def test_all_that_this_torch_needs_changed_is_changed(python):
    code = """
import torch
from npu_dispatch.npu import patches
torch.ones(1, device="npu")
print(patches.missing())
"""
    assert python(code).stdout.strip() == "{}"


def test_a_change_that_cannot_be_made_does_not_cost_the_device(python):
    code = """
import torch
from torch.nn.modules import linear_cross_entropy_options as options
del options.LinearCrossEntropyOptions._adjust
import npu_dispatch
npu_dispatch.register()
from npu_dispatch.npu import patches
print(torch.ones(1, device="npu").item(), *patches.missing())
"""
    done = python(code, NPU_AUTOLOAD="0", **OFF)

    assert done.stdout.strip() == "1.0 sum_as_on_cpu"
    assert "sum_as_on_cpu" in done.stderr


@pytest.mark.parametrize("modules", ["torch", "npu_dispatch, torch"])
def test_an_import_loads_the_device(python, entry_point, modules):
    code = f"import {modules}; print(torch.ones(2, device='npu').sum().item())"

    assert python(code, **entry_point).stdout.strip() == "2.0"


def test_npu_autoload_0_skips(python, entry_point):
    code = "import torch; print(hasattr(torch, 'npu'))"

    result = python(code, NPU_AUTOLOAD="0", **entry_point)

    assert result.stdout.strip() == "False"


def test_registering_by_hand_after_npu_autoload_0(python):
    code = """
import npu_dispatch
npu_dispatch.register()
npu_dispatch.register()
import torch
print(npu_dispatch.is_registered(), torch.ones(1, device="npu").item())
"""
    result = python(code, NPU_AUTOLOAD="0", **OFF)

    assert result.stdout.strip() == "True 1.0"


# A reader of statistics, or a tool in a notebook beside another torch.
MODULES = ["observe.segment.reader", "observe.trace", "errors"]


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("before", ["import torch; ", WRONG_TORCH])
def test_a_module_that_needs_no_device_registers_none(python, module, before):
    code = f"{before}import npu_dispatch.{module}; print(hasattr(torch, 'npu'))"

    assert python(code, **OFF).stdout.strip() == "False"


@pytest.mark.parametrize("module", ["npu", "npu.streams"])
def test_a_module_of_the_device_registers_it(python, module):
    code = f"import torch, npu_dispatch.{module}; print(hasattr(torch, 'npu'))"

    assert python(code, **OFF).stdout.strip() == "True"


def test_another_torch_is_refused_with_both_versions(python):
    result = python(WRONG_TORCH + "import npu_dispatch", check=False, **OFF)

    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert "TorchVersionError" in last
    for part in ("1.2.3", TORCH_VERSION, "Install"):
        assert part in last


def test_a_failing_autoload_does_not_break_torch(python, entry_point, tmp_path: Path):
    # A module that shadows the extension, and cannot be imported.
    code = """
import sys
sys.modules["npu_dispatch._C"] = None
import torch
print(torch.ones(2).sum().item())
try:
    import npu_dispatch
except ImportError:
    print("an explicit import raises")
"""
    result = python(code, **entry_point)

    assert result.stdout.splitlines() == ["2.0", "an explicit import raises"]
    assert "device 'npu' is not available" in result.stderr


def test_torch_npu_wins(python, tmp_path: Path, entry_point):
    (tmp_path / "site" / "torch_npu.py").write_text("raise SystemExit('imported')")

    result = python("import torch; print(hasattr(torch, 'npu'))", **entry_point)

    assert result.stdout.strip() == "False"
    assert "torch_npu is installed" in result.stderr


def test_importing_starts_no_thread_and_no_runtime(python):
    code = """
import os, torch
before = len(os.listdir("/proc/self/task"))
import npu_dispatch
print(len(os.listdir("/proc/self/task")) - before, torch.npu.is_initialized())
"""
    assert python(code, **OFF).stdout.strip() == "0 False"


def test_importing_loads_no_others_modules(fresh_python):
    code = """
import sys, torch
before = set(sys.modules)
import npu_dispatch
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(*sorted(new - {"npu_dispatch", "torch"}))
"""
    # Of what torch has not loaded, such as sysconfig, none is for free.
    assert fresh_python(code, **OFF).stdout.split() == ["lazy_loader"]


@pytest.mark.parametrize("before", ["", "import torch"])
def test_a_subinterpreter_is_refused(python, before):
    code = f"""
{before}
try:
    import _interpreters as interpreters
    # The default of CPython 3.13 refuses each module with a single phase by itself.
    one = interpreters.create("legacy")
except ImportError:  # before CPython 3.13
    import _xxsubinterpreters as interpreters
    one = interpreters.create()
try:
    told = interpreters.run_string(one, "import npu_dispatch._C")
    print(told.formatted)
except getattr(interpreters, "RunFailedError", ()) as error:
    print(error)
interpreters.destroy(one)
import torch
print(torch.ones(2, device="npu").sum().item())
"""

    result = python(code)

    refusal, number = result.stdout.splitlines()
    assert "ImportError" in refusal
    assert "use the main interpreter" in refusal
    assert number == "2.0"


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

    assert ours == "npu_dispatch.cli"


def test_one_reader_of_proc_stat_agrees_with_the_kernel():
    from npu_dispatch.observe.segment.system import (
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
