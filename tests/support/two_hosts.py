"""Two hosts on this machine: each has a network, a name and a hosts file of its own.

A cable joins them: a pair of veth interfaces. As on many hosts, the own name
stands for 127.0.1.1.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

NAMES = ("one", "two")
ADDRESSES = ("10.77.0.1", "10.77.0.2")
CABLE = "cable"
_NAMESPACES = {"net": 0x40000000, "uts": 0x04000000, "mnt": 0x00020000}

# For programs: enter(0) is the first host's. It has to come before any thread.
ENTER = """
def enter(host):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    for kind, flag in {kinds}.items():
        fd = os.open("/proc/%d/ns/%s" % ({pids}[host], kind), os.O_RDONLY)
        assert libc.setns(fd, flag) == 0, os.strerror(ctypes.get_errno())
        os.close(fd)
"""


class TwoHosts:
    """A context in which they exist; what still runs there at its end lives on."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._inits: list[subprocess.Popen[str]] = []

    def __enter__(self) -> TwoHosts:
        for own, other in ((0, 1), (1, 0)):
            hosts = self._folder / f"hosts-{NAMES[own]}"
            hosts.write_text(
                f"127.0.0.1 localhost\n127.0.1.1 {NAMES[own]}\n"
                f"{ADDRESSES[other]} {NAMES[other]}\n"
            )
            script = (
                f"mount --bind {hosts} /etc/hosts && hostname {NAMES[own]} && "
                "ip link set lo up && echo ready && read -r end"
            )
            init = subprocess.Popen(
                ["unshare", "-num", "sh", "-c", script],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            self._inits.append(init)
            assert init.stdout is not None
            assert init.stdout.readline() == "ready\n"
        two = str(self._inits[1].pid)
        self.run(0, "ip", "link", "add", CABLE, "type", "veth", "peer", CABLE,
                 "netns", two)  # fmt: skip
        for host in (0, 1):
            self.run(host, "ip", "addr", "add", f"{ADDRESSES[host]}/24", "dev", CABLE)
            self.run(host, "ip", "link", "set", CABLE, "up")
        return self

    def __exit__(self, *_: object) -> None:
        for init in self._inits:
            init.communicate("end\n")
        self._inits.clear()

    def prefix(self, host: int) -> tuple[str, ...]:
        """Return what a command is put behind, to run on a host."""
        pid = str(self._inits[host].pid)
        return ("nsenter", "-t", pid, "-n", "-u", "-m", f"--wd={self._folder}")

    def run(self, host: int, *command: str) -> None:
        subprocess.run([*self.prefix(host), *command], check=True)

    def start(self, host: int, *command: str, **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            # What hangs does not outlive the test by long.
            ["timeout", "-k", "1", "200", *self.prefix(host), *command],
            text=True,
            **options,
        )

    def enter(self) -> str:
        """Return the code of enter()."""
        pids = tuple(init.pid for init in self._inits)
        return ENTER.format(kinds=_NAMESPACES, pids=pids)

    def slow_down(self, rate: str) -> None:
        shape = ("tbf", "rate", rate, "burst", "64kb", "latency", "100ms")
        for host in (0, 1):
            self.run(host, "tc", "qdisc", "replace", "dev", CABLE, "root", *shape)

    def cut(self) -> None:
        """Lose every packet, and tell nobody: it goes to a card that is not there."""
        for host in (0, 1):
            self.run(host, "ip", "neigh", "replace", ADDRESSES[1 - host], "dev", CABLE,
                     "lladdr", "02:00:00:00:00:77", "nud", "permanent")  # fmt: skip


def skip_without_hosts() -> None:
    """Skip where this machine has no namespaces for us, and say what is missing."""
    for tool in ("ip", "tc", "unshare", "nsenter", "hostname"):
        if shutil.which(tool) is None:
            assert not os.environ.get("CI"), f"no {tool}: see .ci/run"
            pytest.skip(f"no {tool}: install iproute2, util-linux and hostname")
    libc = ctypes.CDLL(None, use_errno=True)
    pid = os.fork()
    if pid == 0:
        failed = libc.unshare(sum(_NAMESPACES.values()))
        os._exit(1 if failed else 0)
    if os.waitpid(pid, 0)[1]:
        pytest.skip("a network of its own needs CAP_SYS_ADMIN, which root has")
