"""Which processes use the device, and what their counters say over time."""

from npu_dispatch.processes.listing import Processes, ProcessView, StreamView

__all__ = ["ProcessView", "Processes", "StreamView"]
