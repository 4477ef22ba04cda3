"""Which reports of the race sanitizer are not to be made."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

from npu_dispatch.sanitizer.reports import KINDS, Report

__all__ = ["Suppressions"]


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
