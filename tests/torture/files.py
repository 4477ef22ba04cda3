"""Makes each call fail by which the product writes a file, or takes a descriptor.

`python -m tests.torture.files --seconds 60`; prints JSON. A writer of writers.py is
made in a child of its own; it then writes again and again, and each time the next of
its calls fails: no room, an error of the disk, no descriptor in the process or in the
system. After each: what it has written is right, or it has raised at a line; nothing
unfinished lies about; then it writes twice as if nothing had been.
"""

import argparse
import gc
import os
import random
import tempfile
import time
import traceback
from pathlib import Path

from tests.torture import part, victims, writers
from tests.torture.faults import Calls, start_again
from tests.torture.part import Told

KINDS = ("ENOSPC", "EIO", "EMFILE", "ENFILE")


class _Case:
    """One writer, in the child that uses the device."""

    def __init__(self, name: str, kind: str, folder: Path) -> None:

        self.calls, self.kind, self.folder = Calls(), kind, folder
        self.source = writers.__file__
        self.writer = writers.WRITERS[name](folder)
        for _ in range(2):  # modules are there then, and caches full
            assert self._works() == ""
        self.files = self._listed()

    def _listed(self) -> set[Path]:
        events = Path("/dev/shm").glob(f"npu_event-{os.getpid()}-*")
        return {*self.folder.rglob("*"), *events}

    def _works(self) -> str:
        self.writer.write()
        return "" if self.writer.check() else "what it wrote is wrong"

    def total(self) -> int:
        self.calls.arm(self.kind, 0, str(self.folder))
        self.writer.write()
        self.calls.disarm()
        self.writer.check()
        return self.calls.seen

    def one(self, n: int) -> Told:

        files = victims.descriptors()
        told = self._fail(n)
        gc.collect()  # an exception's frames hold files open, and events
        if told.get("bad"):
            return told
        if more := self._listed() - self.files:
            return {**told, "bad": f"left {sorted(map(str, more))}"}
        for _ in range(2):
            if wrong := self._works():
                return {**told, "bad": f"the next time, {wrong}"}
        if victims.descriptors() > files:
            return {**told, "bad": "leaks a descriptor"}
        return told

    def _fail(self, n: int) -> Told:
        """Fail the n-th call; return what came of it."""

        raised: Exception | None = None
        self.calls.arm(self.kind, n, str(self.folder))
        try:
            self.writer.write()
        except Exception as error:
            raised = error
        self.calls.disarm()
        told: Told = {"failed": self.calls.failed}
        if raised is None:
            return told if self.writer.check() else {**told, "bad": "it wrote wrong"}
        told |= {"raised": type(raised).__name__, "text": str(raised)[:400]}
        frames = traceback.extract_tb(raised.__traceback__)
        if not isinstance(raised, victims.TYPED):
            told["bad"] = "".join(traceback.format_exception(raised))[-1500:]
        elif not any(frame.filename == self.source for frame in frames):
            told["bad"] = f"raised at no line: {raised!r}"
        return told


def writer(name: str, kind: str, end: float, only: int = 0) -> Told:
    """Fail one call after the other of one writer, in a child."""

    def body() -> Told:
        with tempfile.TemporaryDirectory() as folder:
            case = _Case(name, kind, Path(folder))
            total = case.total()
            numbers = [only] if only else range(1, total + 1)
            found = []
            for n in numbers:
                if time.monotonic() > end:
                    break
                # Where the child comes to a bad end, this is the end of its stderr.
                os.write(2, f"{name} {kind} {n}\n".encode())
                found.append({"n": n, **case.one(n)})
            return {"total": total, "cases": found}

    os.environ["NPU_TRACE"] = "1"
    return victims.in_child(body)


def campaign(asked: argparse.Namespace) -> Told:
    end, told = time.monotonic() + asked.seconds, part.sums(asked.seed)
    order = [(name, kind) for name in writers.WRITERS for kind in KINDS]
    random.Random(asked.seed).shuffle(order)
    for name, kind in part.in_time(order, asked.seconds, told):
        found = writer(name, kind, end)
        # Where the child has ended badly or hangs there is one case: the last.
        for case in found.get("cases", [found]):
            part.add(told, case, kind, name, case.get("n", ""))
    return told


def one(kind: str, name: str, n: str) -> Told:
    return writer(name, kind, time.monotonic() + 600, int(n))


if __name__ == "__main__":
    part.main(
        __doc__, campaign, one=one, asks=("KIND", "WRITER", "N"), start=start_again
    )
