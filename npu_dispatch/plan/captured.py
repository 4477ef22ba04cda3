"""Whether one step of the program can be captured into a graph."""

from __future__ import annotations

import contextlib
import traceback

import torch

import npu_dispatch
from npu_dispatch import _C, npu

__all__ = ["CapturedStep"]

_LIBRARIES = tuple(
    path for package in (torch, npu_dispatch) for path in package.__path__
)


class CapturedStep:
    """A capture that begins where one step ends, and is to end with the next one.

    NPUGraph refuses an optimizer that counts its steps on the host, because that
    count would stand still in replays. Here it does not matter: the graph is not
    replayed.
    """

    def __init__(self) -> None:
        self.graph = _C.Graph()
        npu.synchronize()
        self.graph.capture_begin(0, "relaxed", False)

    def end(self) -> None:
        """End the capture. Raises RuntimeError where the step broke it."""
        self.graph.capture_end()

    def give_up(self, error: BaseException | None) -> tuple[str, str]:
        """Return why the step cannot be captured, and the program's own line."""
        with contextlib.suppress(RuntimeError):  # the capture is broken already
            self.graph.capture_end()
        if error is None:
            return "the program ended before another step did", ""
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
        return (str(error).splitlines() or [""])[0], where
