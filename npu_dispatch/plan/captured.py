"""One step of the program captured into a graph, and replayed."""

from __future__ import annotations

import contextlib
import statistics
import traceback
from typing import Any

import torch

import npu_dispatch
from npu_dispatch import _C, npu

__all__ = ["CapturedStep"]

_WARMUP, _REPLAYS = 5, 100
_LIBRARIES = tuple(
    path for package in (torch, npu_dispatch) for path in package.__path__
)


class CapturedStep:
    """A capture that begins where one step ends, and is to end with the next one.

    NPUGraph refuses an optimizer that counts its steps on the host, because that
    count would stand still in replays. Here it does not matter: only the time of
    the replays is wanted.
    """

    def __init__(self) -> None:
        self.graph = _C.Graph()
        npu.synchronize()
        self.graph.capture_begin(0, "relaxed", False)

    def measure(self) -> dict[str, Any]:
        """End the capture, and return the ns that a replay takes on the device.

        Replays are measured one at a time: here a replay begins when the end of the
        one before it has been noticed, which takes longer than on a real device.
        Raises RuntimeError where the step broke the capture.
        """
        self.graph.capture_end()
        took = []
        for _ in range(_WARMUP + _REPLAYS):
            begun, ended = (npu.Event(enable_timing=True) for _ in range(2))
            begun.record()
            self.graph.replay()
            ended.record()
            ended.synchronize()
            took.append(begun.elapsed_time(ended) * 1e6)
        return {"ns": statistics.median(took[_WARMUP:])}

    def give_up(self, error: BaseException | None) -> dict[str, Any]:
        """Return why the step cannot be captured, and the program's own line."""
        with contextlib.suppress(RuntimeError):  # the capture is broken already
            self.graph.capture_end()
        if error is None:
            return {"why": "the program ended before another step did", "where": ""}
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if not f.filename.startswith(_LIBRARIES)]
        where = f"{own[-1].filename}:{own[-1].lineno}" if own else ""
        return {"why": str(error).splitlines()[0] if str(error) else "", "where": where}
