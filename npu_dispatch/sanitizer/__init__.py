"""What the race sanitizer reports, how reports are written, and which are left out.

Nothing here needs torch; `torch.npu._sanitizer` switches the sanitizer on.

The findings of all processes that a command starts come through files in one folder.
Each process that uses the device has a file there, of pickled entries. The first one
says who the process is. Each finding is added when it is made, so that a process which
is killed loses none. A tuple of all of them says that the process has ended by itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any
from urllib.parse import quote

from npu_dispatch.observe.segment.system import lives, pid_namespace, process_start

__all__ = [
    "KINDS",
    "Access",
    "Findings",
    "Frame",
    "Process",
    "Report",
    "Suppressions",
    "read_all",
    "to_json",
    "to_sarif",
]

_SUFFIX = ".findings"
KINDS = {
    "write/write": "two writes to the same bytes that nothing orders",
    "read/write": "a read and a write of the same bytes that nothing orders",
    "allocator-reuse": "memory was allocated again while another stream may use it",
    "use-after-free": "a task uses memory that was freed before it was launched",
    "host-read": "the host reads its own memory while queued work still writes it",
    "host-write": "the host writes its own memory while queued work still uses it",
    "unordered-foreign-launch": "submitted work uses the same bytes without an order",
    "unordered-collective": "a collective uses the same bytes without an order",
    "overwritten-result": "the replay of another graph of the pool has overwritten it",
}


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: int
    function: str
    user: bool  # not in torch, this package or Python itself

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


@dataclass(frozen=True, slots=True)
class Access:
    """One of the two accesses: by an operator, by other work, or by the host."""

    op: str
    argument: str
    stream: str  # "npu:0 stream 3", or "the host"
    task: int  # its number in the stream
    mode: str  # "read", "write"
    range: tuple[int, int]  # addresses that bound what it touches
    stack: tuple[Frame, ...]  # user frames first, innermost first
    forward: tuple[Frame, ...] = ()  # in backward: that of the forward call
    stream_made: str = ""  # the line that made the stream; "" when not known

    @property
    def where(self) -> Frame | None:
        """The user's innermost line."""
        return self.stack[0] if self.stack else None

    def text(self) -> str:
        verb = {"read": "reads", "write": "writes"}[self.mode]
        stream = self.stream
        if self.stream_made:
            stream += f", made at {self.stream_made}"
        lines = [f"{self.op} {verb} {self.argument} on {stream}"]
        if self.op == "free":  # the first of a use-after-free
            lines = [f"freed on {stream}"]
        shown = [f for f in self.stack if f.user] or list(self.stack)
        lines += [f"    {frame}" for frame in shown[:8]]
        if self.forward:
            lines.append(f"    in the backward of the call at {self.forward[0]}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Report:
    """Two accesses that nothing orders, and a call that would order them."""

    kind: str  # a key of KINDS
    first: Access
    second: Access
    allocation: tuple[Frame, ...]  # where the block was allocated
    freed: tuple[Frame, ...]  # where its last life ended, for reuse and free
    bytes: int  # of the block
    pinned: bool
    edge: str  # the ordering that is missing
    suggestion: str  # a call that adds it
    count: int = 1  # how often the same two lines were found
    pid: int = 0  # of the process that found it
    rank: int | None = None  # of that process, where it has one

    @property
    def key(self) -> tuple[object, ...]:
        """A key that is equal for reports of the same two places."""
        one, two = self.first, self.second
        return (self.kind, one.op, one.where, two.op, two.where)

    def again(self) -> Report:
        return replace(self, count=self.count + 1)

    def text(self) -> str:
        memory = "pinned buffer" if self.pinned else "block"
        lines = [
            f"npu sanitizer: {self.kind}: {KINDS[self.kind]}",
            f"  first:  {_indent(self.first.text())}",
            f"  second: {_indent(self.second.text())}",
        ]
        if self.allocation:
            lines.append(
                f"  {memory} of {self.bytes} bytes allocated at {self.allocation[0]}"
            )
        if self.freed:
            lines.append(f"  freed before at {self.freed[0]}")
        lines += [f"  missing: {self.edge}", f"  fix: {self.suggestion}"]
        if self.count > 1:
            lines.append(f"  found {self.count} times")
        return "\n".join(lines)


def _indent(text: str) -> str:
    return text.replace("\n", "\n  ")


def to_json(reports: Iterable[Report]) -> str:
    """Return a JSON list with one object per report."""
    return json.dumps([asdict(report) for report in reports], indent=2)


def to_sarif(reports: Iterable[Report]) -> str:
    """Return a SARIF 2.1.0 log, as code hosts show it next to the source."""
    results = [_sarif_result(report) for report in reports]
    rules = [
        {"id": kind, "shortDescription": {"text": text}} for kind, text in KINDS.items()
    ]
    driver = {"name": "npu_dispatch sanitizer", "rules": rules}
    log = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "results": results}],
    }
    return json.dumps(log, indent=2)


def _sarif_result(report: Report) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": report.kind,
        "level": "error",
        "message": {"text": f"{report.edge}. {report.suggestion}"},
        "occurrenceCount": report.count,
        "properties": {"pid": report.pid, "rank": report.rank},
    }
    if report.second.where:
        result["locations"] = [_sarif_location(report.second.where)]
    related = [
        (report.first.where, f"first: {report.first.op}"),
        (report.allocation[0] if report.allocation else None, "allocated"),
    ]
    result["relatedLocations"] = [
        {**_sarif_location(frame), "message": {"text": text}}
        for frame, text in related
        if frame
    ]
    return result


def _sarif_location(frame: Frame) -> dict[str, Any]:
    return {
        "physicalLocation": {
            "artifactLocation": _place_of(Path(frame.file)),
            "region": {"startLine": max(1, frame.line)},
        }
    }


def _place_of(file: Path) -> dict[str, str]:
    """Return where a file is: below the current folder, as code hosts know it."""
    here = Path.cwd()
    if file.is_absolute() and not file.is_relative_to(here):
        return {"uri": file.as_uri()}
    below = file.relative_to(here) if file.is_absolute() else file
    return {"uri": quote(below.as_posix()), "uriBaseId": "%SRCROOT%"}


class Suppressions:
    """The reports to leave out, by lines of `GLOB` or `KIND GLOB`; `#` is a comment.

    GLOB is compared with the file of every user frame of both sides, and with the
    line as well where it ends with `:LINE`. It may contain spaces, or be quoted as
    in a shell. A line that is neither of the two forms raises ValueError.
    """

    def __init__(self, lines: Iterable[str] = (), source: str = "suppressions") -> None:
        self.rules: list[tuple[str, str]] = []
        for number, line in enumerate(lines, 1):
            try:
                rule = _rule(line)
            except ValueError as problem:
                raise ValueError(
                    f"{source}, line {number}: expected GLOB or KIND GLOB with "
                    f"KIND one of {', '.join(KINDS)}, found {line.strip()!r}"
                    f" ({problem})"
                ) from None
            if rule:
                self.rules.append(rule)

    @classmethod
    def read(cls, path: Path | str) -> Suppressions:
        return cls(Path(path).read_text().splitlines(), str(path))

    def match(self, report: Report) -> bool:
        frames = [f for f in report.first.stack + report.second.stack if f.user]
        return any(
            kind in ("*", report.kind)
            and any(
                fnmatch(frame.file, glob) or fnmatch(f"{frame.file}:{frame.line}", glob)
                for frame in frames
            )
            for kind, glob in self.rules
        )


def _rule(line: str) -> tuple[str, str] | None:
    words = shlex.split(line, comments=True)
    if not words:
        return None
    if words[0] in KINDS:
        if len(words) == 1:
            raise ValueError(f"to suppress all of the kind: {words[0]} *")
        return words[0], " ".join(words[1:])
    if len(words) > 1 and re.fullmatch(r"[a-z/-]+", words[0]):
        raise ValueError(f"no kind {words[0]!r}; quote a GLOB that begins so")
    return "*", " ".join(words)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that used the device under `npu-dispatch sanitize`."""

    pid: int
    start: int
    namespace: int
    command: tuple[str, ...]
    rank: int | None
    reports: tuple[Report, ...] = ()
    ended: bool = False  # and all that it found is known

    def lives(self) -> bool | None:
        """Return whether it runs still; None where that cannot be told."""
        return lives(self.pid, self.start, self.namespace)


class Findings:
    """This process's file, which is opened by name each time."""

    def __init__(self, folder: Path, rank: int | None) -> None:
        self._lost = False  # something could not be written
        pid = os.getpid()
        file, name = tempfile.mkstemp(_SUFFIX, f"{pid}-", folder)
        os.close(file)
        self._path = Path(name)
        start = process_start(pid)
        self._put(Process(pid, start, pid_namespace(), tuple(sys.argv), rank))

    def add(self, report: Report) -> None:
        """Note a finding that was not made before."""
        self._put(report)

    def end(self, counted: Sequence[Report]) -> None:
        """Say that this process ends by itself; `counted` are its findings so far."""
        if not self._lost:
            self._put(tuple(counted))

    def _put(self, entry: object) -> None:
        # One write, so that the entries of two threads do not mix.
        data = pickle.dumps(entry)
        try:
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            try:
                self._lost |= os.write(file, data) != len(data)
            finally:
                os.close(file)
        except OSError:  # no room, or the folder is gone: the program goes on
            self._lost = True


def read_all(folder: Path) -> list[Process]:
    """Return the processes that used the device, in the order of their numbers."""
    found = [_read(path) for path in sorted(folder.glob(f"*{_SUFFIX}"))]
    return sorted((one for one in found if one), key=lambda one: one.pid)


def _read(path: Path) -> Process | None:
    entries = list(_entries(path))
    if not entries:  # it was killed before it had used the device
        return None
    process: Process = entries[0]
    reports: dict[object, Report] = {}
    ended = False
    for entry in entries[1:]:
        ended = ended or isinstance(entry, tuple)
        for report in entry if isinstance(entry, tuple) else (entry,):
            reports[report.key] = report
    return replace(process, reports=tuple(reports.values()), ended=ended)


def _entries(path: Path) -> Iterator[Any]:
    # The last entry of a process that was killed may be a part of one.
    with (
        path.open("rb") as file,
        contextlib.suppress(EOFError, pickle.UnpicklingError),
    ):
        while True:
            yield pickle.load(file)
