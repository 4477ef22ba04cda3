"""Range markers under torch.cuda.nvtx's names.

Nothing is kept unless the process is traced (`npu-dispatch trace`) or
torch.npu.profiler records. Then each moment is noted twice: when the host came
by, and when the current stream did. A stack of ranges belongs to its thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from npu_dispatch.npu._lazy import is_initialized
from npu_dispatch.npu._marks import Ranges, recorder
from npu_dispatch.npu.streams import Stream, current_stream

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_ranges = Ranges()
_DOMAIN = "nvtx"


def _stream() -> Stream | None:
    """Return the current stream, if marks are wanted and the device is in use."""
    return current_stream() if recorder.wanted() and is_initialized() else None


def mark(msg: str) -> None:
    """Mark this moment."""
    if recorder.wanted():
        recorder.point(str(msg), _DOMAIN, _stream())


def range_push(msg: str) -> int:
    """Open a range within this thread's latest; return its depth from 0."""
    return _ranges.push(str(msg), _DOMAIN, _stream())


def range_pop() -> int:
    """Close this thread's latest range; return its depth, negative if none."""
    return _ranges.pop(_DOMAIN)


def range_start(msg: str) -> int:
    """Open a range that any thread may end; return its number, from 1."""
    return _ranges.start(str(msg), _DOMAIN, _stream())


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
