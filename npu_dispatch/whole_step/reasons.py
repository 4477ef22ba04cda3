"""Why steps run without a graph, in a sentence at the user's line."""

from __future__ import annotations

import re
import sys
import traceback
import warnings
from pathlib import Path
from typing import Any

import torch

_NOT_THEIRS = str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<"


def sentence_of(error: BaseException) -> str:
    """Return what went wrong in one line, with the user's file and line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [*lines, type(error).__name__][0]
    if said.endswith("raised:"):  # by what Dynamo has called
        said = " ".join(lines[:2])
    # Dynamo's message is a title, then an explanation.
    said += next((f": {s[12:]}" for s in lines if s.startswith("Explanation:")), "")
    if "stale reference to the default stream" in said:
        said = "an autograd graph of the parameters is kept, such as that of a loss: "
        said += "keep loss.detach()"
    said = re.sub(r"\s+", " ", said)[:400].rstrip(" .:")
    stacks: list[Any] = []
    cause: BaseException | None = error
    while cause is not None:
        stacks.append(getattr(cause, "real_stack", None) or ())
        cause = cause.__cause__
    for stack in [*stacks, traceback.extract_tb(error.__traceback__)]:
        for frame in reversed(stack):
            if not frame.filename.startswith(_NOT_THEIRS):
                known = frame.filename in said
                return said if known else f"{said} ({frame.filename}:{frame.lineno})"
    return said


def warn(text: str) -> None:
    """Warn at the line that has called this package."""
    depth, frame = 1, sys._getframe()
    while frame.f_back and frame.f_code.co_filename.startswith(_NOT_THEIRS):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(text, stacklevel=depth)
