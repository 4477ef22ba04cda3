"""torch.npu.streams: streams and events, as torch.cuda.streams has them."""

from npu_dispatch.npu.runtime import own_names

# This is not exported: it serves Event(interprocess=True) once it is imported.
from npu_dispatch.npu.streams import shared_event as shared_event
from npu_dispatch.npu.streams.current import (
    StreamContext as StreamContext,
    clear_error as clear_error,
    current_stream as current_stream,
    default_stream as default_stream,
    reset_device as reset_device,
    set_stream as set_stream,
    stream as stream,
    stream_error as stream_error,
)
from npu_dispatch.npu.streams.event import Event as Event
from npu_dispatch.npu.streams.stream import (
    Stream as Stream,
    SyncLaunchStream as SyncLaunchStream,
)

__all__ = own_names(globals())
