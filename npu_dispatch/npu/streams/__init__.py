"""torch.npu.streams: streams and events, as torch.cuda.streams has them."""

from npu_dispatch.npu.streams.current import (
    StreamContext,
    clear_error,
    current_stream,
    default_stream,
    reset_device,
    set_stream,
    stream,
    stream_error,
)
from npu_dispatch.npu.streams.event import Event

# This is not exported: it serves Event(interprocess=True) once it is imported.
from npu_dispatch.npu.streams.shared_event import SharedEvent as SharedEvent
from npu_dispatch.npu.streams.stream import Stream, SyncLaunchStream

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "SyncLaunchStream",
    "clear_error",
    "current_stream",
    "default_stream",
    "reset_device",
    "set_stream",
    "stream",
    "stream_error",
]
