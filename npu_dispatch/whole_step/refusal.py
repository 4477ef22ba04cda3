"""The one sentence that says what cannot be captured, and where it is."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from pathlib import Path

import torch

__all__ = ["RefusedError", "sentence_of"]

_NOT_THEIRS = tuple(
    str(folder)
    for folder in (Path(torch.__file__).parent, Path(__file__).resolve().parents[1])
)
_LONGEST = 400


class RefusedError(Exception):
    """The step does something that a replay would not do."""


def _users_line(frames: Iterable[traceback.FrameSummary]) -> str:
    for frame in reversed(list(frames)):
        if not frame.filename.startswith((*_NOT_THEIRS, "<")):
            return f"{frame.filename}:{frame.lineno}"
    return ""


def sentence_of(error: BaseException) -> str:
    """Return what went wrong in one line, with the user's file and line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = lines[0] if lines else type(error).__name__
    for line in lines[1:]:
        # Dynamo's message: a title, then an explanation.
        if line.startswith("Explanation:"):
            said += f": {line.removeprefix('Explanation:').strip()}"
            break
    said = re.sub(r"\s+", " ", said)[:_LONGEST].rstrip(" .:")
    cause: BaseException | None = error
    where = ""
    while cause is not None and not where:
        where = _users_line(getattr(cause, "real_stack", None) or ())
        cause = cause.__cause__
    where = where or _users_line(traceback.extract_tb(error.__traceback__))
    if where and where.rpartition(":")[0] not in said:
        said += f" ({where})"
    return said
