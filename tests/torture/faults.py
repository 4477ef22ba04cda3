"""Makes the n-th call of a kind fail, for one n after the other.

`python -m tests.torture.faults --seconds 60`; prints JSON. It starts itself again
with failing_calls.cpp in front of libc.
"""

import argparse
import asyncio
import ctypes
import errno
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch

from tests.support import preload
from tests.torture import part, program, victims
from tests.torture.part import Told

_LIBRARY = ("new", "malloc", "mmap", "thread", "descriptor", "disk", "fork")
# What the library is told, and what a call then fails with.
KINDS = {
    **{name: (name, 0) for name in ("new", "malloc", "mmap", "thread", "fork")},
    **{name: ("descriptor", getattr(errno, name)) for name in ("EMFILE", "ENFILE")},
    **{name: ("disk", getattr(errno, name)) for name in ("ENOSPC", "EIO")},
}
# Segments, traces, events, and memory that is a file.
PRODUCT_FILES = ("/dev/shm/npu", "/memfd:npu")
SOURCE = Path(__file__).resolve().with_name("failing_calls.cpp")


class Calls:
    """The preloaded library, in the process that it is in front of."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)
        for name in ("fault_seen", "fault_failed"):
            getattr(self._library, name).restype = ctypes.c_long
        self._library.fault_site.restype = ctypes.c_size_t

    def arm(self, kind: str, n: int, *files: str) -> None:
        """Let the n-th call fail, of those for the product's files and the others."""
        call, error = KINDS[kind]
        self._library.fault_error(error)
        self._library.fault_files("\n".join((*PRODUCT_FILES, *files)).encode())
        found = self._library.fault_arm(_LIBRARY.index(call), ctypes.c_long(n))
        assert found, "the extension is not loaded"

    def disarm(self) -> None:
        self._library.fault_disarm()

    @property
    def seen(self) -> int:
        return int(self._library.fault_seen())

    @property
    def failed(self) -> int:
        return int(self._library.fault_failed())

    def sites(self) -> list[int]:
        return [
            self._library.fault_site(ctypes.c_long(n))
            for n in range(min(self.seen, 1 << 16))
        ]


def places(kind: str, every: bool, wanted: program.State) -> list[int]:
    """Return which calls to fail: all, or the first and last from each place."""

    calls = Calls()

    def count() -> Told:
        calls.arm(kind, 0)
        result = _everything(wanted)
        calls.disarm()
        return {"sites": calls.sites(), **result}

    counted = victims.in_child(count)
    assert "right" in counted, counted
    sites = counted["sites"]
    if every:
        return list(range(1, len(sites) + 1))
    first = {site: n for n, site in reversed(list(enumerate(sites, 1)))}
    last = {site: n for n, site in enumerate(sites, 1)}
    return sorted({*first.values(), *last.values()})


def _everything(wanted: program.State) -> Told:
    """Run the program, and what it does not have: a coroutine's wait, a fork.

    All of it is traced, so that there is a trace's file.
    """

    os.environ["NPU_TRACE"] = "1"
    result = victims.outcome(wanted)
    if "right" not in result:
        return result

    async def wait() -> None:
        x = torch.ones(3, device="npu")
        await torch.npu.current_stream()
        assert (x + 1).sum().item() == 6

    try:
        asyncio.run(wait())
        pid = os.fork()
    except victims.TYPED as error:
        return {"raised": type(error).__name__, "text": str(error), "line": 1}
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return result


def inject(kind: str, n: int, wanted: program.State) -> Told:
    """Fail one call of a cold program; return what came of it."""

    calls = Calls()

    def body() -> Told:
        calls.arm(kind, n)
        result = _everything(wanted)
        failed = calls.failed
        calls.disarm()
        told = {**result, "failed": failed}
        if "wrong" in result:
            return {**told, "bad": f"wrong: {result['wrong']}"}
        if "raised" in result and not result["line"]:
            return {**told, "bad": f"raised at no line: {result}"}
        return {**told, **victims.again(wanted)}

    return victims.in_child(body, leave=n % 2 == 0)


def cases(every: bool, seed: int, wanted: program.State) -> Iterator[tuple[str, int]]:
    """Yield what to fail: the rare kinds first and whole, then in a drawn order."""
    rest: list[tuple[str, int]] = []
    for kind in reversed(list(KINDS)):
        found = [(kind, n) for n in places(kind, every, wanted)]
        if len(found) <= 20:
            yield from found
        else:
            rest += found
    random.Random(seed).shuffle(rest)
    yield from rest


def campaign(asked: argparse.Namespace) -> Told:

    wanted, told = victims.expected(), part.sums(asked.seed)
    order = cases(asked.every, asked.seed, wanted)
    for kind, n in part.in_time(order, asked.seconds, told):
        part.add(told, inject(kind, n, wanted), kind, n)
    return told


def one(kind: str, n: str) -> Told:

    return inject(kind, int(n), victims.expected())


def start_again(source: Path = SOURCE) -> None:
    """Start this program again in a process with a library in front of libc."""
    if source.stem in os.environ.get("LD_PRELOAD", ""):
        return
    with tempfile.TemporaryDirectory() as folder:
        library = preload.build(source, Path(folder))
        env = {**os.environ, "LD_PRELOAD": str(library), "TMPDIR": folder}
        name = sys.modules["__main__"].__spec__
        assert name
        command = [sys.executable, "-m", name.name, *sys.argv[1:]]
        sys.exit(subprocess.run(command, env=env, check=False).returncode)


if __name__ == "__main__":
    part.main(
        __doc__,
        campaign,
        one=one,
        asks=("KIND", "N"),
        options=lambda p: p.add_argument(
            "--every", action="store_true", help="every n of each kind"
        ),
        start=start_again,
    )
