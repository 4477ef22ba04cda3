"""Range markers under torch.cuda.nvtx's names.

Nothing is kept unless torch.npu.profiler records. A stack of ranges belongs to
its thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from npu_dispatch.npu._marks import Ranges, recorder

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_ranges = Ranges()
_DOMAIN = "nvtx"


def mark(msg: str) -> None:
    """Mark this moment."""
    if recorder.on:
        recorder.point(str(msg), _DOMAIN, None)


def range_push(msg: str) -> int:
    """Open a range within this thread's latest; return its depth from 0."""
    return _ranges.push(str(msg), _DOMAIN, None)


def range_pop() -> int:
    """Close this thread's latest range; return its depth, negative if none."""
    return _ranges.pop(_DOMAIN)


def range_start(msg: str) -> int:
    """Open a range that any thread may end; return its number, from 1."""
    return _ranges.start(str(msg), _DOMAIN, None)


def range_end(range_id: int) -> None:
    """Close the range of that number; an unknown number does nothing."""
    with contextlib.suppress(KeyError):
        _ranges.finish(range_id, _DOMAIN)


@contextlib.contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """Put the block (or the decorated function) in a range.

    The range's name is `msg` formatted with the further arguments.
    """
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
