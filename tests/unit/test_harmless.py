"""Programs that did not ask for the device are not harmed by its being installed."""

import sys
import sysconfig
import zipapp
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORKS = "print(torch.ones(2, device='npu').sum().item())"
# Of a container that runs as a number nobody knows.
NO_HOME = """
import os, pwd
os.environ.pop("HOME", None)
os.environ.pop("XDG_CACHE_HOME", None)
def unknown(uid): raise KeyError(uid)
pwd.getpwuid = unknown
"""
BROKEN = "import sys; sys.modules['npu_dispatch._C'] = None\n"
ODD = {
    "no home": NO_HOME,
    "no sys.argv": "import sys; del sys.argv\n",
    "empty sys.argv": "import sys; sys.argv = []\n",
    "no sys.executable": "import sys; sys.executable = None\n",
    "no stderr": "import sys; sys.stderr = None\n",
    "no __main__ file": "import __main__; __main__.__dict__.pop('__file__', None)\n",
}


@pytest.fixture
def python(importing_python):
    """That imports torch itself, as importing is what is tested."""
    return importing_python


@pytest.mark.parametrize("oddity", ODD.values(), ids=ODD)
def test_the_device_works_in_an_odd_process(python, oddity: str):
    # The watchdog is the one thing that starts a program of ours at import.
    result = python(oddity + "import torch\n" + WORKS, NPU_DISPATCH_WATCHDOG="30s")

    assert result.stdout.strip() == "2.0"


def test_a_watchdog_that_cannot_start_is_a_warning(python):
    code = "import sys; sys.executable = '/nowhere'\nimport torch\n" + WORKS

    result = python(code, NPU_DISPATCH_WATCHDOG="30s")

    assert result.stdout.strip() == "2.0"
    assert "there is no watchdog" in result.stderr


# -I is -E and -s.
@pytest.mark.parametrize("flag", ["-I", "-OO"])
def test_import_torch_works_under_a_flag(fresh_python, flag: str):
    code = "import torch; print(torch.ones(2).sum().item())"

    result = fresh_python.run(flag, "-c", code)

    assert (result.returncode, result.stdout.strip()) == (0, "2.0"), result.stderr


def test_import_torch_works_without_site(fresh_python):
    """Where the path is all there is, and half of an editable installation on it."""
    path = [str(ROOT), sysconfig.get_path("purelib")]
    code = f"import sys; sys.path += {path!r}; import torch; print(torch.ones(2))"

    result = fresh_python.run("-S", "-c", code)

    assert result.returncode == 0, result.stderr


def test_import_torch_works_in_a_zipapp(fresh_python, tmp_path: Path):
    source = tmp_path / "program"
    source.mkdir()
    (source / "__main__.py").write_text(f"import torch\n{WORKS}\n")
    zipapp.create_archive(source, tmp_path / "program.pyz")

    result = fresh_python.run(str(tmp_path / "program.pyz"))

    assert (result.returncode, result.stdout.strip()) == (0, "2.0"), result.stderr


def test_a_module_without_a_spec_in_torch_npus_place_counts_as_that(python):
    code = """
import sys, types
sys.modules["torch_npu"] = types.ModuleType("torch_npu")
import torch
print(hasattr(torch, "npu"))
"""
    assert python(code).stdout.strip() == "False"


def test_a_read_only_dev_shm_costs_the_statistics_only(python):
    code = (
        """
import ctypes, sys
libc = ctypes.CDLL(None, use_errno=True)
NEW_NAMESPACE, PRIVATE, READ_ONLY = 0x20000, 1 << 18 | 1 << 14, 1
if (
    libc.unshare(NEW_NAMESPACE)
    or libc.mount(b"", b"/", None, PRIVATE, None)
    or libc.mount(b"", b"/dev/shm", b"tmpfs", READ_ONLY, None)
):
    print("not allowed")
    sys.exit()
import torch
"""
        + WORKS
    )
    result = python(code)

    if result.stdout.strip() == "not allowed":
        pytest.skip("no mounts of one's own here")
    assert result.stdout.strip() == "2.0"
    told = [line for line in result.stderr.splitlines() if "statistics" in line]
    assert len(told) == 1
    assert "Read-only file system" in told[0]


PROJECT = """
import sys
def test_nothing():
    assert not {"torch", "npu_dispatch"} & set(sys.modules)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Somebody's tests, that have nothing to do with torch."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "test_it.py").write_text(PROJECT)
    return folder


def test_pytest_of_another_project_imports_nothing_of_ours(fresh_python, project: Path):
    result = fresh_python.run("-m", "pytest", "-q", cwd=project)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("what", ["_C", "config", "pytest_plugin"])
def test_pytest_runs_without_a_part_of_ours(fresh_python, project: Path, what: str):
    (project / "conftest.py").write_text(
        f"import sys; sys.modules['npu_dispatch.{what}'] = None"
    )
    result = fresh_python.run("-m", "pytest", "-q", "-p", "conftest", cwd=project)

    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("flag", ["--npu-sanitize", "--npu-sync=error"])
def test_who_asks_pytest_for_a_broken_device_is_told(fresh_python, project, flag):
    (project / "conftest.py").write_text(BROKEN)

    result = fresh_python.run("-m", "pytest", "-q", "-p", "conftest", flag, cwd=project)

    assert result.returncode != 0
    assert "npu_dispatch._C" in result.stdout + result.stderr


def test_a_cache_without_a_home_is_refused_with_what_to_do(python):
    code = NO_HOME + (
        "from npu_dispatch.config import cache_folder\n"
        "try: cache_folder()\n"
        "except RuntimeError as error: print(error)"
    )
    assert "set XDG_CACHE_HOME" in python(code, NPU_AUTOLOAD="0").stdout


PLANTED = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
NAMES = ("json", "socket", "struct", "subprocess", "tempfile")
STARTS = {
    "exporter": """
from npu_dispatch.metrics import start_exporter
try:
    start_exporter(0).close()
except OSError:
    pass
""",
    "watchdog": """
import os
from npu_dispatch.observe.judge.watchdog import start_watchdog
start_watchdog(os.getpid(), 60)
""",
    "doctor": """
from npu_dispatch.cli import doctor
list(doctor._try_device({}))
""",
    "plan": """
from npu_dispatch.plan import record, spec
try:
    record.record(["nothing.py"], [spec.load("a100-80gb-sxm")])
except record.PlanError:
    pass
""",
}


@pytest.mark.parametrize("code", STARTS.values(), ids=STARTS)
def test_a_helper_imports_nothing_from_here(fresh_python, tmp_path: Path, code: str):
    here = tmp_path / "here"
    here.mkdir()
    for name in NAMES:
        (here / f"{name}.py").write_text(PLANTED)
    script = tmp_path / "script.py"
    script.write_text(code)

    # Its pipes end with the last helper that has them.
    done = fresh_python.run(str(script), cwd=here)

    assert done.returncode == 0, done.stderr
    assert not (here / "ran").exists()


def test_one_file_says_how_python_is_started():
    ours = Path(sys.modules["npu_dispatch"].__file__).parent.rglob("*.py")
    naming = {path.name for path in ours if "[sys.executable" in path.read_text()}

    assert naming == {"config.py", "doctor.py"}  # doctor's is text for a user
