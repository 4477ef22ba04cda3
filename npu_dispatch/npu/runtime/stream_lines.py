"""Which Python line made a stream, for those who report on it."""

from __future__ import annotations

from npu_dispatch import _C

__all__ = ["line_of_stream", "note_stream"]

# The call site that took a stream from its pool last, by device and stream.
_taken_at: dict[tuple[int, int], int] = {}


def note_stream(device: int, stream_id: int) -> None:
    """Remember that the calling line has made a stream."""
    _taken_at[device, stream_id] = _C.current_call_site()


def line_of_stream(device: int, stream_id: int) -> str:
    """Return the line that made a stream, or "" where it is not known.

    A stream of a pool belongs to the line that took it last.
    """
    site = _taken_at.get((device, stream_id), 0)
    return _C.call_line(site) if site else ""
