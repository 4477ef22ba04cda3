"""The steps of a training, and what the counters said while they were taken."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable
from statistics import median
from typing import Any

from npu_dispatch.observe.judge.rates import key
from npu_dispatch.observe.segment.listing import ProcessView

__all__ = ["Steps"]

# The first steps compile, capture, allocate, and fill caches.
_WARM_UP = 8
_REMEMBERED = 1024


class Steps:
    """Steps of one optimizer, the one that stepped first of those that still live.

    `read` returns the process's counters. It is called after the eighth step and
    then whenever the number of steps is a power of two, so `first` and `last` are the
    ends of a span that lies inside of the training and has about half of its steps.
    """

    def __init__(self, read: Callable[[], ProcessView | None]) -> None:
        self.count = 0
        self.first: ProcessView | None = None
        self.last: ProcessView | None = None
        self._read = read
        self._between = 0  # steps from `first` to `last`
        self._times: deque[int] = deque(maxlen=_REMEMBERED)
        self._at = 0
        # Weak: what an optimizer holds is the program's memory.
        self._optimizer: weakref.ref[Any] | None = None

    def stepped(self, optimizer: Any, *_: object) -> None:
        """Count a step; a hook of torch.optim, called after optimizer.step()."""
        known = self._optimizer() if self._optimizer else None
        if known is None:
            self._optimizer = weakref.ref(optimizer)
            self._at = 0
        elif known is not optimizer:
            return
        now = time.monotonic_ns()
        if self._at:
            self._times.append(now - self._at)
        self.count += 1
        if self.count == _WARM_UP:
            self.first = self._read()
        elif self.count > _WARM_UP and self.count.bit_count() == 1:
            self.last = self._read()
            self._between = self.count - _WARM_UP
        # Without what the readings take.
        self._at = time.monotonic_ns()

    @property
    def host_s(self) -> float | None:
        """The median time from one step's end to the next one's; None: unknown."""
        steady = list(self._times)[_WARM_UP - 1 :] or self._times
        return median(steady) / 1e9 if steady else None

    @property
    def device_s(self) -> float | None:
        """How long the busiest stream works in a step; None where it is unknown."""
        if self.first is None or self.last is None:
            return None
        old = {key(stream): stream.stats.busy_ns for stream in self.first.streams}
        busy = [s.stats.busy_ns - old.get(key(s), 0) for s in self.last.streams]
        return max(busy, default=0) / 1e9 / self._between
