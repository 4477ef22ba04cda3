"""Each finding of `npu-dispatch doctor`, where what it finds is really so."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import Forked, environment, shared_zygote
from own_mounts import in_own_mounts
from zygote import read_at_start

from npu_dispatch.cli import doctor
from npu_dispatch.versions import needed


@pytest.fixture(scope="module")
def examined():
    """examined(NAME=value, before=function): the command's status and answer."""
    forked = Forked(Path.cwd(), shared_zygote())
    doctor = ("-m", "npu_dispatch", "doctor", "--json")

    def answered(ended):
        assert ended.returncode in (0, 1), ended.stderr
        answer = json.loads(ended.stdout)
        assert answer["healthy"] == (ended.returncode == 0)
        return ended.returncode, answer

    def run(before=None, command=(), **env):
        if not before and not command and not read_at_start(env):
            return answered(forked.run(*doctor, env=environment(**env)))
        ended = subprocess.run(
            [*command, sys.executable, *doctor],
            env=environment(**env),
            preexec_fn=before,
            capture_output=True,
            text=True,
            timeout=120,
        )
        return answered(ended)

    return run


@pytest.fixture(scope="module")
def found(examined):
    """Return what is found where many things are odd, each by itself."""

    def limited():
        resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))

    status, answer = examined(
        before=limited,
        TORCH_NPU_SANITIZER="yes please",
        NPU_AUTOLOAD="0",
        OMP_NUM_THREADS="1000",
        NPU_DISPATCH_MEMORY="64M",
        NPU_DISPATCH_MEMORY_7="64M",
        NPU_DISPATCH_CORE="2",
        XDG_CACHE_HOME="/proc/nowhere",
        CXX="/nowhere/g++",
    )
    assert (status == 0) == (not [f for f in answer["findings"] if f["problem"]])
    return answer


def told(answer, word):
    """Return the one finding that has the word."""
    found = [f for f in answer["findings"] if word in f["what"]]
    assert len(found) == 1, answer["findings"]
    assert found[0]["fix"]
    return found[0]


def distribution(folder: Path, name: str, version: str, entry: str = "") -> Path:
    """Install a package that has no more than a name."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    (info / "entry_points.txt").write_text(entry)
    return folder


def test_a_healthy_machine_computes_and_is_told_so(examined):
    status, answer = examined()

    assert status == 0 and not [f for f in answer["findings"] if f["problem"]]
    assert answer["facts"]["1 + 1 on npu"] == "2.0"


def test_the_null_driver_computes_nothing(examined):
    status, answer = examined(NPU_DRIVER="null")

    finding = told(answer, "1 + 1 = 0.0 (driver null)")
    assert status == 1 and finding["fix"] == "unset NPU_DRIVER"


@pytest.mark.parametrize(
    ("driver", "word"),
    [("foo", "known: host, null"), ("/no/driver.so", "no such file")],
)
def test_an_unknown_driver_is_named(examined, driver, word):
    status, answer = examined(NPU_DRIVER=driver)

    assert status == 1 and word in told(answer, f"NPU_DRIVER={driver}")["what"]


def test_hidden_devices(examined):
    status, answer = examined(ASCEND_RT_VISIBLE_DEVICES="9")

    finding = told(answer, "there are no devices")
    assert status == 1 and finding["fix"] == "unset ASCEND_RT_VISIBLE_DEVICES"


def test_another_torch(examined, tmp_path):
    path = distribution(tmp_path, "torch", "2.11.0")

    status, answer = examined(PYTHONPATH=str(path))

    finding = told(answer, "torch 2.11.0 is installed")
    assert status == 1 and needed() in finding["fix"]


ENTRY = "[torch.backends]\nother = other_npu:load\n"


def test_another_package_that_is_a_device_of_torchs(examined, tmp_path):
    path = distribution(tmp_path, "other_npu", "1.0", ENTRY)
    (path / "other_npu.py").write_text(
        "import torch\n"
        "def load():\n"
        "    torch.utils.rename_privateuse1_backend('other')\n"
    )

    status, answer = examined(PYTHONPATH=str(path))

    assert "other_npu:load" in told(answer, "the package other_npu")["what"]
    assert "pip uninstall other_npu" in told(answer, "the package other_npu")["fix"]
    # Whoever was first has it; where that was not us, nothing works.
    assert status == (0 if answer["facts"].get("1 + 1 on npu") == "2.0" else 1)


def test_variables_that_do_nothing_or_too_much(found):
    assert told(found, "TORCH_NPU_SANITIZER")["fix"] == "unset TORCH_NPU_SANITIZER"
    assert "unset NPU_AUTOLOAD" in told(found, "NPU_AUTOLOAD=0")["fix"]
    assert told(found, "OMP_NUM_THREADS=1000")["fix"] == "unset OMP_NUM_THREADS"


def test_a_misspelt_variable(found):
    finding = told(found, "NPU_DISPATCH_CORE ")
    assert finding["fix"] == "export NPU_DISPATCH_CORES=2" and not finding["problem"]


def test_one_core(examined):
    def on_one():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    status, answer = examined(before=on_one, LOCAL_WORLD_SIZE="2")

    assert status == 0 and told(answer, "may use one core")
    assert told(answer, "2 ranks divide 1 core")["fix"].endswith("--nproc-per-node 1")
    assert answer["facts"]["cores"] == "1"


def test_limits_of_files_and_addresses(found):
    assert told(found, "open 128 files")["fix"] == "ulimit -n 4096"
    assert told(found, "limited to 1024.0 GiB")["fix"] == "ulimit -v unlimited"


def test_little_device_memory(found):
    finding = told(found, "64 MiB of memory")
    assert not finding["problem"] and "NPU_DISPATCH_MEMORY" in finding["fix"]


def test_a_cache_that_cannot_be_written(found):
    assert "XDG_CACHE_HOME" in told(found, "/proc/nowhere")["fix"]


def test_a_cache_that_others_may_change(monkeypatch, tmp_path):
    tmp_path.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    finding = next(doctor._tools())

    assert f"every user may change {tmp_path}" in finding.what
    assert finding.fix == "export XDG_CACHE_HOME=$(mktemp -d)"


def test_no_home(monkeypatch):
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)

    finding = next(doctor._tools())

    assert "HOME is not set" in finding.what and "XDG_CACHE_HOME" in finding.fix


def no_home():
    raise RuntimeError("of a user whom the system does not know")


def test_no_compiler(found):
    assert "apt-get install g++" in told(found, "no compiler /nowhere/g++")["fix"]


def test_a_small_shared_memory(examined):
    small = in_own_mounts("mount -t tmpfs -o size=1m tmpfs /dev/shm")

    status, answer = examined(command=small)

    assert status == 0
    assert "--shm-size" in told(answer, "/dev/shm has 1 of 1 MiB free")["fix"]
    assert "private" in answer["facts"]["statistics"]


def test_a_folder_of_statistics_that_is_none(examined):
    blocked = in_own_mounts(
        "mount -t tmpfs tmpfs /dev/shm; touch /dev/shm/npu_dispatch-0"
    )

    _, answer = examined(command=blocked)

    finding = told(answer, "/dev/shm/npu_dispatch-0 is not a folder")
    assert "no statistics" in finding["what"]
    assert finding["fix"] == "sudo rm -r /dev/shm/npu_dispatch-0"


def test_files_of_statistics_that_cannot_be_read_are_named(examined):
    planted = in_own_mounts(
        "mount -t tmpfs tmpfs /dev/shm; mkdir -m 700 /dev/shm/npu_dispatch-0; "
        "echo short > /dev/shm/npu_dispatch-0/7"
    )

    status, answer = examined(command=planted)

    assert status == 0
    assert "/dev/shm/npu_dispatch-0/7: too short" in told(answer, "not watched")["what"]


def test_people_read_problems_first_and_what_fixes_them(fresh_python):
    env = environment(NPU_DRIVER="null", OMP_NUM_THREADS="1000")
    ended = fresh_python.run("-m", "npu_dispatch", "doctor", env=env)

    lines = [line.strip() for line in ended.stdout.splitlines()]
    assert ended.returncode == 1
    problem = lines.index("problem  the device computes 1 + 1 = 0.0 (driver null)")
    assert lines[problem + 1] == "fix  unset NPU_DRIVER"
    assert any(line.startswith("advice  OMP_") for line in lines[problem:])
