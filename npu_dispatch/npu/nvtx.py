"""Range markers under torch.cuda.nvtx's names.

Nothing is kept unless the process is traced (`npu-dispatch trace`) or
torch.npu.profiler records. Then each moment is noted twice: when the host got there,
and when the current stream did. Each thread has its own stack of ranges.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from npu_dispatch.npu.debugging.ranges import Ranges, recorder
from npu_dispatch.npu.runtime.start import is_initialized
from npu_dispatch.npu.streams import Stream, current_stream

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

_log = logging.getLogger(__name__)
_ranges = Ranges()
_DOMAIN = "nvtx"


def _stream() -> Stream | None:
    """Return the current stream, if marks are wanted and the device is in use."""
    return current_stream() if recorder.wanted() and is_initialized() else None


def _text(msg: object) -> str:
    """Return a mark's name. Marking never raises, whatever it is given."""
    try:
        return str(msg)
    except Exception as error:
        _log.error("nvtx: a %s has no text: %s", type(msg).__name__, error)
        return type(msg).__name__


def mark(msg: str) -> None:
    """Mark this moment."""
    if recorder.wanted():
        recorder.point(_text(msg), _DOMAIN, _stream())


def range_push(msg: str) -> int:
    """Open a range within this thread's latest; return its depth from 0."""
    return _ranges.push(_text(msg), _DOMAIN, _stream())


def range_pop() -> int:
    """Close this thread's latest range; return its depth, negative if none."""
    return _ranges.pop(_DOMAIN)


def range_start(msg: str) -> int:
    """Open a range that any thread may end; return its number, from 1."""
    return _ranges.start(_text(msg), _DOMAIN, _stream())


def range_end(range_id: int) -> None:
    """Close the range of that number; an unknown number does nothing."""
    with contextlib.suppress(KeyError, TypeError):
        _ranges.finish(range_id, _DOMAIN)


@contextlib.contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """Put the block (or the decorated function) in a range.

    The range's name is `msg` formatted with the further arguments, or `msg` itself
    where they do not fit.
    """
    try:
        msg = msg.format(*args, **kwargs)
    except Exception as error:
        _log.error("nvtx.range: %r does not take its arguments: %s", msg, error)
    range_push(msg)
    try:
        yield
    finally:
        range_pop()
