"""A stream whose work stands still until a test lets go of it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch


class Held:
    """Keeps a stream busy until the end of the block, and asks no clock."""

    def __init__(self, stream: torch.npu.Stream | None = None, *used: torch.Tensor):
        """Hold that stream, or the current one, with a task on the tensors."""
        self.stream = stream or torch.npu.current_stream()
        self.used = used
        self.gate = threading.Event()

    def __enter__(self) -> Held:
        self.stream.submit(lambda *views: self.gate.wait(), *self.used, name="held")
        return self

    def __exit__(self, *exc: object) -> None:
        self.gate.set()


@contextlib.contextmanager
def held_stream(x: torch.Tensor) -> Iterator[tuple[torch.npu.Stream, threading.Event]]:
    """Give a stream with a task on `x` that ends when the event is set."""
    torch.npu.synchronize()
    with Held(torch.npu.Stream(), x) as held:
        yield held.stream, held.gate
    torch.npu.synchronize()
