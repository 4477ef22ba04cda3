"""A task that keeps a stream busy."""

from __future__ import annotations

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.streams.current import current_stream

__all__ = ["_sleep"]


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for `cycles` nanoseconds, as its clock has 1 GHz."""
    if not isinstance(cycles, int) or isinstance(cycles, bool):
        raise coded(
            TypeError, f"cycles must be an int, but got {type(cycles).__name__}"
        )
    if cycles <= 0:
        raise coded(RuntimeError, f"cycles must be positive, but got {cycles}")
    _lazy_init()
    stream = current_stream()
    _C.queue_sleep(stream.device_index, stream.stream_id, cycles)
