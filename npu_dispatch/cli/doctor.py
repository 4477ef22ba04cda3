"""`npu-dispatch doctor`, which finds what is often wrong, and `ops`.

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
from pathlib import Path
from typing import Any, NamedTuple

import click

import npu_dispatch
from npu_dispatch import config
from npu_dispatch.cli.options import AS_JSON
from npu_dispatch.observe.segment.folders import SEGMENTS, not_ours
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.untrusted_file import who_may_change
from npu_dispatch.versions import TORCH_VERSION, fits, needed

_SHM = Path("/dev/shm")
_DRIVERS = ("host", "null", "emulated")
_FEW_FILES = 256
_MOST_FILES = 8  # that cannot be read, of which it tells
_LITTLE_SHM = 64 << 20
_LITTLE_MEMORY = 256 << 20
_PROBE_SECONDS = 120
_OURS = "npu_dispatch"
# The variables of docs/environment.md whose names begin with NPU_, but those of the
# service. `_N` stands for the number of a device.
OUR_NAMES = (
    "NPU_AUTOGRAD_THREADS",
    "NPU_AUTOLOAD",
    "NPU_DEVICE_NAME",
    "NPU_DISPATCH_CORES",
    "NPU_DISPATCH_CUDA",
    "NPU_DISPATCH_DEVICES",
    "NPU_DISPATCH_LINKS",
    "NPU_DISPATCH_MEMORY",
    "NPU_DISPATCH_MEMORY_N",
    "NPU_DISPATCH_PLACEMENT",
    "NPU_DISPATCH_SEGMENT_GROUP",
    "NPU_DISPATCH_TORCH_NPU_ALIAS",
    "NPU_DISPATCH_WATCHDOG",
    "NPU_DRIVER",
    "NPU_EMULATED",
    "NPU_EMULATED_SPEC",
    "NPU_LAUNCH_BLOCKING",
    "NPU_STRICT_STREAMS",
    "NPU_TRACE",
    "NPU_TRACE_DIR",
)


class Finding(NamedTuple):
    """What is wrong. `problem`: the device does not work as it should; else advice."""

    problem: bool
    what: str
    fix: str  # a command, or what to change


Findings = Iterator[Finding]


def _problem(wrong: bool, what: str, fix: str) -> list[Finding]:
    return [Finding(True, what, fix)] if wrong else []


def _advice(wrong: bool, what: str, fix: str) -> list[Finding]:
    return [Finding(False, what, fix)] if wrong else []


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _pip(*words: str) -> str:
    return shlex.join([sys.executable, "-m", "pip", *words])


def _cores() -> int:
    return len(os.sched_getaffinity(0))


def _driver() -> str:
    return config.variable("NPU_DRIVER") or "host"


def _torch() -> Findings:
    found, install = _version("torch"), _pip("install", needed())
    yield from _problem(found is None, "torch is not installed", install)
    yield from _problem(
        found is not None and not fits(found),
        f"torch {found} is installed; npu_dispatch is built for {TORCH_VERSION}",
        install,
    )
    yield from _problem(
        importlib.util.find_spec("npu_dispatch._C") is None,
        "npu_dispatch has no compiled part for Python {}.{}: the wheel is of another "
        "one, or nothing was built".format(*sys.version_info),
        f"make build, or {_pip('install', '--force-reinstall', _OURS)}",
    )


def _other_backends() -> Findings:
    """Find other packages that bring torch a device; it has room for one only."""
    for entry in importlib.metadata.entry_points(group="torch.backends"):
        name = entry.dist.name if entry.dist else entry.name
        if name.replace("-", "_") != _OURS:
            yield Finding(
                name == "torch_npu",
                f"the package {name} gives torch a device of its own ({entry.value}); "
                "torch has room for one such device",
                _pip("uninstall", name),
            )


def _drivers() -> Findings:
    driver, is_file = _driver(), "/" in _driver()
    what, fix = f"NPU_DRIVER={driver}: there is no such", "unset NPU_DRIVER"
    yield from _problem(is_file and not Path(driver).is_file(), f"{what} file", fix)
    known = ", ".join(_DRIVERS)
    yield from _problem(
        not is_file and driver not in _DRIVERS,
        f"{what} driver; known: {known}",
        fix,
    )


def _variables() -> Findings:
    for text in config.bad_values():
        yield from _advice(True, text, f"unset {text.partition('=')[0]}")
    torchs = config.variable("TORCH_DEVICE_BACKEND_AUTOLOAD")
    off = {
        "NPU_AUTOLOAD": not config.Config.read().autoload,
        "TORCH_DEVICE_BACKEND_AUTOLOAD": torchs == "0",
    }
    for name in off:
        value = config.variable(name)
        yield from _advice(
            off[name],
            f"{name}={value}: `import torch` alone does not find the device",
            f"unset {name}, or `import npu_dispatch` and call its register()",
        )
    threads = config.variable("OMP_NUM_THREADS") or ""
    yield from _advice(
        threads.isdecimal() and int(threads) > _cores(),
        f"OMP_NUM_THREADS={threads} with {_cores()} cores: kernels wait for threads "
        "that have no core",
        "unset OMP_NUM_THREADS",
    )
    for name in config.names_that_begin("NPU_DISPATCH_"):
        of_a_device = re.sub(r"_\d+$", "_N", name)
        close = difflib.get_close_matches(name, OUR_NAMES, 1)
        yield from _advice(
            of_a_device not in OUR_NAMES and not name.startswith("NPU_DISPATCH_SERVE_"),
            f"{name} is set, and nothing reads it",
            f"export {close[0]}={config.variable(name)}" if close else f"unset {name}",
        )


def _cpu_quota() -> float:
    """Return how many cores the control group may use; infinite where unlimited."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return float("inf") if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError):
        return float("inf")


def _cores_and_limits() -> Findings:
    cores, quota, installed = _cores(), _cpu_quota(), os.cpu_count() or 1
    slow = "the program and its launcher take turns, so nothing runs beside it"
    yield from _advice(
        cores < 2,
        f"this process may use one core: {slow}",
        f"taskset -c 0-{installed - 1} COMMAND, without the limit to one core"
        if installed > 1
        else "use a machine with two cores or more",
    )
    yield from _advice(
        cores >= 2 > quota,
        f"the container may use {quota:.1f} cores: {slow}",
        "docker run --cpus=2 ..., or a higher CPU limit",
    )
    ranks = config.variable("LOCAL_WORLD_SIZE") or ""
    yield from _advice(
        ranks.isdecimal() and int(ranks) > cores,
        f"{ranks} ranks divide {cores} core{'s' * (cores > 1)}: each waits for the "
        "cores of others",
        f"torchrun --nproc-per-node {cores}",
    )
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield from _advice(
        files != resource.RLIM_INFINITY and files < _FEW_FILES,
        f"a process may open {files} files only",
        "ulimit -n 4096",
    )
    space, _ = resource.getrlimit(resource.RLIMIT_AS)
    yield from _advice(
        space != resource.RLIM_INFINITY,
        f"the address space is limited to {space / 2**30:.1f} GiB: device memory "
        "is reserved there before it is used",
        "ulimit -v unlimited",
    )


def _shared_memory() -> Findings:
    if not _SHM.is_dir():
        what = f"{_SHM} is missing: nobody sees this process's statistics"
        yield from _advice(True, what, f"mount -t tmpfs -o size=1g tmpfs {_SHM}")
        return
    room, folder = os.statvfs(_SHM), _SHM / f"{SEGMENTS}-{os.getuid()}"
    free, size = room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize
    yield from _advice(
        free < _LITTLE_SHM,
        f"{_SHM} has {free >> 20} of {size >> 20} MiB free: statistics, "
        "DataLoader workers and tensors of several processes live there",
        f"docker run --shm-size=1g ..., or mount -o remount,size=1g {_SHM}",
    )
    told = taken = not_ours(SEGMENTS)
    if config.runtime_folder() is None:
        none = "there are no statistics, as XDG_RUNTIME_DIR is not set, either"
        told = [*taken, none]
    yield from _advice(bool(taken), "; ".join(told), f"sudo rm -r {folder}")
    where = folder if folder.is_dir() else _SHM
    yield from _advice(
        not taken and not os.access(where, os.W_OK | os.X_OK),
        f"{_SHM} cannot be written: there are no statistics",
        f"sudo chmod 1777 {_SHM}; chmod 700 {folder}",
    )


def _segments() -> Findings:
    with Processes() as processes:
        processes.refresh()
    yield from (
        Finding(
            False,
            f"a process is not watched: {why}",
            "run it with the same version of npu_dispatch, or remove the file",
        )
        for why in processes.unreadable[:_MOST_FILES]
    )


def _writable(folder: Path) -> bool:
    """Return whether files can be made there, once missing folders are made."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:  # access() says that root may write everywhere, also in /proc
        with tempfile.TemporaryDirectory(dir=folder):
            return True
    except OSError:
        return False


def _tools() -> Findings:
    fix = "export XDG_CACHE_HOME=$(mktemp -d)"
    try:
        folder = config.cache_folder()
    except RuntimeError as error:
        yield from _advice(True, str(error), fix)
    else:
        user = "torch.npu.jiterator keeps"
        danger, writable = who_may_change(folder), _writable(folder)
        yield from _advice(
            not writable, f"{folder} cannot be written: {user} its kernels there", fix
        )
        what = f"{user} no kernels in {folder}: {danger}"
        yield from _advice(writable and bool(danger), what, fix)
    compiler = config.Config.read().cxx or "g++"
    yield from _advice(
        shutil.which(shlex.split(compiler)[0]) is None,
        f"no compiler {compiler}: torch.compile makes no kernels of its own",
        "apt-get install g++, or export CXX=...",
    )


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


def _try_device(facts: dict[str, str]) -> Findings:
    """Compute 1 + 1 on the device, in another process."""
    try:
        ended = subprocess.run(
            config.own_python("-c", _PROBE),
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
    told = json.loads(ended.stdout.splitlines()[-1])
    facts |= {"torch": told["torch"], "built for torch": told["built"]}
    facts["devices"] = str(told["devices"])
    if told["devices"]:
        free, total = (size / 2**30 for size in told["memory"])
        facts["memory of npu:0"] = f"{free:.1f} of {total:.1f} GiB free"
        facts["statistics"] = told["statistics"] or "none (private memory)"
        facts["1 + 1 on npu"] = str(told["sum"])
    yield from _judge_probe(told)
    known = {*config.bad_values()}
    for line in said.splitlines():
        if line not in known and "this one's statistics" not in line:
            yield Finding(False, f"the device said: {line}", "see there")


def _judge_probe(told: dict[str, Any]) -> Findings:
    yield from _problem(
        not told["ours"],
        f"torch's extra device is {told['backend']!r}, another package's",
        _pip("list") + ", and uninstall that package",
    )
    hidden = config.variable("ASCEND_RT_VISIBLE_DEVICES")
    name = "ASCEND_RT_VISIBLE_DEVICES" if hidden else "NPU_DISPATCH_DEVICES"
    yield from _problem(
        told["ours"] and not told["devices"],
        f"there are no devices: {name}={config.variable(name)}",
        f"unset {name}",
    )
    if not told["devices"]:
        return
    what = f"the device computes 1 + 1 = {told['sum']} (driver {_driver()})"
    yield from _problem(told["sum"] != 2, what, "unset NPU_DRIVER")
    _, total = told["memory"]
    what = f"the device has {total / 2**20:.0f} MiB of memory"
    yield from _advice(total < _LITTLE_MEMORY, what, "export NPU_DISPATCH_MEMORY=4G")
    yield from _advice(
        not told["statistics"] and not any(_shared_memory()),
        "other processes cannot see this one's statistics",
        f"ls -ld {_SHM} {_SHM}/{SEGMENTS}-{os.getuid()}",
    )


def _examine() -> tuple[dict[str, str], list[Finding]]:
    """Return facts and findings, without starting the device in this process."""
    facts = {
        "python": f"{sys.version.split()[0]} ({sys.executable})",
        "cores": str(_cores()),
    }
    checks = (_torch, _other_backends, _drivers, _variables, _cores_and_limits)
    found = [
        one for check in (*checks, _shared_memory, _segments, _tools) for one in check()
    ]
    if not any(finding.problem for finding in found):
        found += _try_device(facts)
    return facts, sorted(found, key=lambda finding: not finding.problem)


@click.command()
@AS_JSON
def doctor(as_json: bool) -> None:
    """Check the installation; report problems and how to fix them.

    The exit status is 1 if there is a problem, else 0.
    """
    facts, findings = _examine()
    healthy = not any(finding.problem for finding in findings)
    if as_json:
        found = [finding._asdict() for finding in findings]
        told = {"healthy": healthy, "facts": facts, "findings": found}
        click.echo(json.dumps(told, indent=2))
    else:
        for name, fact in {"npu_dispatch": npu_dispatch.__version__, **facts}.items():
            click.echo(f"{name:>16}  {fact}")
        for finding in findings:
            kind = "problem" if finding.problem else "advice"
            click.echo(f"\n{kind:>16}  {finding.what}\n{'fix':>16}  {finding.fix}")
        if not findings:
            click.echo("\nnothing is wrong")
    sys.exit(0 if healthy else 1)


@click.command()
@click.argument("name", default="")
@click.option("--tier", help="Only operators of this tier.")
def ops(name: str, tier: str | None) -> None:
    """List operators matching NAME and how each executes.

    Prints one operator and its tier per line. Tiers structured, meta and hand launch
    asynchronously, composite operators call others, and synchronous ones wait for the
    device.
    """
    table = Path(npu_dispatch.__file__).with_name("op_tiers.txt").read_text()
    rows = [line.split() for line in table.splitlines()]
    tiers = sorted({row[0] for row in rows})
    if tier not in (None, *tiers):
        raise click.BadParameter(
            f"there is no tier {tier!r}; the tiers are {', '.join(tiers)}",
            param_hint="--tier",
        )
    found = [row for row in rows if name in row[1] and tier in (None, row[0])]
    if not found:
        raise click.ClickException(
            f"No torch operator matches {name!r}. Custom operators are asynchronous if "
            "they register a fake kernel."
        )
    for its_tier, operator in found:
        click.echo(f"{its_tier:12} {operator}")
