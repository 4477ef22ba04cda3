"""`npu-dispatch doctor`: what is often wrong, and the command that mends it.

It looks at the machine first. Then another process tries the device, so that this
one can tell how that ended, even in a crash.
"""

from __future__ import annotations

import difflib
import importlib.metadata
import importlib.util
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from npu_dispatch.config import (
    Config,
    bad_values,
    cache_folder,
    names_that_begin,
    runtime_folder,
    variable,
)
from npu_dispatch.observe.segment.folders import SEGMENTS, not_ours
from npu_dispatch.observe.segment.own_folder import who_may_change
from npu_dispatch.own_python import own_python
from npu_dispatch.variables import NAMES
from npu_dispatch.versions import TORCH_VERSION, fits, needed

__all__ = ["Examination", "Finding", "examine"]

_SHM = Path("/dev/shm")
_DRIVERS = ("host", "null", "emulated")
_FEW_FILES = 256
_LITTLE_SHM = 64 << 20
_LITTLE_MEMORY = 256 << 20
_PROBE_SECONDS = 120
_OURS = "npu_dispatch"


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong. `problem`: the device does not work as it should; else advice."""

    problem: bool
    what: str
    mend: str  # a command, or what to change


@dataclass(slots=True)
class Examination:
    facts: dict[str, str] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not any(finding.problem for finding in self.findings)

    def as_dict(self) -> dict[str, Any]:
        return {"healthy": self.healthy, **asdict(self)}


def examine() -> Examination:
    """Look at this machine, without starting the device in this process."""
    found = Examination()
    found.facts["python"] = f"{sys.version.split()[0]} ({sys.executable})"
    found.facts["cores"] = str(len(os.sched_getaffinity(0)))
    for check in (
        _torch,
        _other_backends,
        _variables,
        _misspelt,
        _cores,
        _limits,
        _shared_memory,
        _folders,
        _tools,
    ):
        found.findings += check()
    if found.healthy:
        found.findings += _try_device(found.facts)
    return found


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pip(*words: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", *words])


def _torch() -> Iterator[Finding]:
    found = _version("torch")
    install = _pip("install", needed())
    if found is None:
        yield Finding(True, "torch is not installed", install)
    elif not fits(found):
        what = f"torch {found} is installed; npu_dispatch is built for {TORCH_VERSION}"
        yield Finding(True, what, install)
    if importlib.util.find_spec("npu_dispatch._C") is None:
        version = "{}.{}".format(*sys.version_info)
        yield Finding(
            True,
            f"npu_dispatch has no compiled part for Python {version}: the wheel is of "
            "another one, or nothing was built",
            f"make build, or {_pip('install', '--force-reinstall', _OURS)}",
        )


def _other_backends() -> Iterator[Finding]:
    """Return other packages that bring torch a device; it has room for one only."""
    for entry in importlib.metadata.entry_points(group="torch.backends"):
        name = entry.dist.name if entry.dist else entry.name
        if name.replace("-", "_") != _OURS:
            yield Finding(
                name == "torch_npu",
                f"the package {name} gives torch a device of its own ({entry.value}); "
                "torch has room for one such device",
                _pip("uninstall", name),
            )


def _variables() -> Iterator[Finding]:
    driver = variable("NPU_DRIVER") or "host"
    if "/" in driver:
        if not Path(driver).is_file():
            what = f"NPU_DRIVER={driver}: there is no such file"
            yield Finding(True, what, "unset NPU_DRIVER")
    elif driver not in _DRIVERS:
        what = f"NPU_DRIVER={driver}: there is no such driver"
        yield Finding(True, f"{what}; known: {', '.join(_DRIVERS)}", "unset NPU_DRIVER")
    for text in bad_values():
        yield Finding(False, text, f"unset {text.partition('=')[0]}")
    off = [] if Config.read().autoload else ["NPU_AUTOLOAD"]
    if variable("TORCH_DEVICE_BACKEND_AUTOLOAD") == "0":
        off.append("TORCH_DEVICE_BACKEND_AUTOLOAD")
    for name in off:
        yield Finding(
            False,
            f"{name}={variable(name)}: `import torch` alone does not find the device",
            f"unset {name}, or `import npu_dispatch` and call its register()",
        )
    threads = variable("OMP_NUM_THREADS") or ""
    cores = len(os.sched_getaffinity(0))
    if threads.isdecimal() and int(threads) > cores:
        yield Finding(
            False,
            f"OMP_NUM_THREADS={threads} with {cores} cores: kernels wait for threads "
            "that have no core",
            "unset OMP_NUM_THREADS",
        )


def _misspelt() -> Iterator[Finding]:
    """Find variables that would be ours, did anybody read them."""
    for name in names_that_begin("NPU_DISPATCH_"):
        of_a_device = re.sub(r"_\d+$", "_N", name)
        if of_a_device in NAMES or name.startswith("NPU_DISPATCH_SERVE_"):
            continue
        close = difflib.get_close_matches(name, NAMES, 1)
        mend = f"export {close[0]}={variable(name)}" if close else f"unset {name}"
        yield Finding(False, f"{name} is set, and nothing reads it", mend)


def _cpu_quota() -> float | None:
    """Return how many cores the control group may use, or None for all there are."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return None


def _cores() -> Iterator[Finding]:
    cores = len(os.sched_getaffinity(0))
    quota = _cpu_quota()
    slow = "the program and its launcher take turns, so nothing runs beside it"
    if cores < 2:
        installed = os.cpu_count() or 1
        mend = (
            f"taskset -c 0-{installed - 1} COMMAND, without the limit to one core"
            if installed > 1
            else "use a machine with two cores or more"
        )
        yield Finding(False, f"this process may use one core: {slow}", mend)
    elif quota is not None and quota < 2:
        what = f"the container may use {quota:.1f} cores: {slow}"
        yield Finding(False, what, "docker run --cpus=2 ..., or a higher CPU limit")
    ranks = variable("LOCAL_WORLD_SIZE") or ""
    if ranks.isdecimal() and int(ranks) > cores:
        yield Finding(
            False,
            f"{ranks} ranks divide {cores} core(s): each waits for the cores of others",
            f"torchrun --nproc-per-node {cores}",
        )


def _limits() -> Iterator[Finding]:
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < _FEW_FILES:
        what = f"a process may open {files} files only"
        yield Finding(False, what, "ulimit -n 4096")
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    if space != resource.RLIM_INFINITY:
        yield Finding(
            False,
            f"the address space is limited to {space / 2**30:.1f} GiB: device memory "
            "is reserved there before it is used",
            "ulimit -v unlimited",
        )


def _shared_memory() -> Iterator[Finding]:
    mount = f"mount -t tmpfs -o size=1g tmpfs {_SHM}"
    if not _SHM.is_dir():
        what = f"{_SHM} is missing: nobody sees this process's statistics"
        yield Finding(False, what, mount)
        return
    room = os.statvfs(_SHM)
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    if free < _LITTLE_SHM:
        yield Finding(
            False,
            f"{_SHM} has {free >> 20} of {size >> 20} MiB free: statistics, "
            "DataLoader workers and tensors of several processes live there",
            f"docker run --shm-size=1g ..., or mount -o remount,size=1g {_SHM}",
        )
    folder = _SHM / f"{SEGMENTS}-{os.getuid()}"
    if taken := not_ours(SEGMENTS):
        what = "; ".join(taken)
        if runtime_folder() is None:
            what += "; there are no statistics, as XDG_RUNTIME_DIR is not set, either"
        yield Finding(False, what, f"sudo rm -r {folder}")
    elif not os.access(folder if folder.is_dir() else _SHM, os.W_OK | os.X_OK):
        what = f"{_SHM} cannot be written: there are no statistics"
        yield Finding(False, what, f"sudo chmod 1777 {_SHM}; chmod 700 {folder}")


def _writable(folder: Path) -> bool:
    """Return whether files can be made there, once missing folders are made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:  # access() says that root may write everywhere, also in /proc
        with tempfile.TemporaryDirectory(dir=folder):
            return True
    except OSError:
        return False


def _folders() -> Iterator[Finding]:
    mend = "export XDG_CACHE_HOME=$(mktemp -d)"
    try:
        folder = cache_folder()
    except RuntimeError as error:
        yield Finding(False, str(error), mend)
        return
    if not _writable(folder):
        what = (
            f"{folder} cannot be written: torch.npu.jiterator keeps its kernels there"
        )
        yield Finding(False, what, mend)
    elif danger := who_may_change(folder):
        what = f"torch.npu.jiterator keeps no kernels in {folder}: {danger}"
        yield Finding(False, what, mend)


def _tools() -> Iterator[Finding]:
    compiler = Config.read().cxx or "g++"
    if shutil.which(shlex.split(compiler)[0]) is None:
        what = f"no compiler {compiler}: torch.compile makes no kernels of its own"
        yield Finding(False, what, "apt-get install g++, or export CXX=...")


_PROBE = """
import json, sys
import torch
import npu_dispatch
npu_dispatch.register()
from npu_dispatch import _C, npu, versions
told = {"torch": torch.__version__, "built": versions.TORCH_VERSION}
told["ours"] = npu_dispatch.is_registered()
told["backend"] = torch._C._get_privateuse1_backend_name()
told["devices"] = _C.device_count() if told["ours"] else 0
if told["devices"]:
    told["memory"] = npu.mem_get_info()
    told["sum"] = (torch.ones((), device="npu") + 1).item()
    told["statistics"] = _C.segment_path()
print(json.dumps(told))
"""


def _try_device(facts: dict[str, str]) -> Iterator[Finding]:
    try:
        ended = subprocess.run(
            own_python("-c", _PROBE),
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        what = f"1 + 1 on the device was not done after {_PROBE_SECONDS} s"
        yield Finding(True, what, "npu-dispatch dump PID, of a process of yours")
        return
    said = ended.stderr.strip()
    if ended.returncode:
        last = said.splitlines()[-1] if said else "and said nothing"
        how = "failed"
        if ended.returncode < 0:
            how = f"was ended by {signal.Signals(-ended.returncode).name}"
        again = "python -c 'import torch; torch.ones((), device=\"npu\") + 1'"
        yield Finding(True, f"1 + 1 on the device {how}: {last}", again)
        return
    yield from _judge_probe(json.loads(ended.stdout.splitlines()[-1]), facts)
    known = {*bad_values()}
    for line in said.splitlines():
        if line not in known and "this one's statistics" not in line:
            yield Finding(False, f"the device said: {line}", "see there")


def _judge_probe(told: dict[str, Any], facts: dict[str, str]) -> Iterator[Finding]:
    facts["torch"] = told["torch"]
    facts["built for torch"] = told["built"]
    facts["devices"] = str(told["devices"])
    if not told["ours"]:
        what = f"torch's extra device is {told['backend']!r}, another package's"
        yield Finding(True, what, _pip("list") + ", and uninstall that package")
        return
    if not told["devices"]:
        hidden = variable("ASCEND_RT_VISIBLE_DEVICES")
        name = "ASCEND_RT_VISIBLE_DEVICES" if hidden else "NPU_DISPATCH_DEVICES"
        what = f"there are no devices: {name}={variable(name)}"
        yield Finding(True, what, f"unset {name}")
        return
    free, total = told["memory"]
    facts["memory of npu:0"] = f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free"
    facts["statistics"] = told["statistics"] or "none (private memory)"
    facts["1 + 1 on npu"] = str(told["sum"])
    if told["sum"] != 2:
        driver = variable("NPU_DRIVER") or "host"
        what = f"the device computes 1 + 1 = {told['sum']} (driver {driver})"
        yield Finding(True, what, "unset NPU_DRIVER")
    if total < _LITTLE_MEMORY:
        what = f"the device has {total / 2**20:.0f} MiB of memory"
        yield Finding(False, what, "export NPU_DISPATCH_MEMORY=4G")
    if not told["statistics"] and not any(_shared_memory()):
        what = "other processes cannot see this one's statistics"
        yield Finding(False, what, f"ls -ld {_SHM} {_SHM}/npu_dispatch-{os.getuid()}")
