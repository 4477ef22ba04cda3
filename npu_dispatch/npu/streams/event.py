"""Events: marks in streams."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, ClassVar, Self, cast

import torch

from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.devices import Device, resolve
from npu_dispatch.npu.streams import awaiting


class Event(torch.Event):
    """A mark in a stream.

    With `enable_timing`, elapsed_time() and recorded_time() work. With `blocking`,
    host waits sleep at once instead of spinning first. With `interprocess`, another
    process can wait for the event, through ipc_handle(); such an event cannot have
    timing. Nothing is made on a device before the first record(), and later records
    must be on the same device. When the stream has failed, query() and synchronize()
    raise its error, since the recorded work may have been dropped.
    """

    # The subclasses, by the argument of Event() that asks for each.
    _special: ClassVar[dict[str, type[Event]]] = {}

    def __init_subclass__(cls, asked_by: str | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if asked_by is not None:
            cls._special[asked_by] = cls

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> Self:
        if not _C.device_count():
            raise coded(RuntimeError, "No NPU devices are available")
        if external:
            raise coded(
                RuntimeError,
                "Event(external=True): an Event recorded in a capture is part of the "
                "graph; use torch.npu.ExternalEvent, which is not (docs/graphs.md)",
            )
        if interprocess and enable_timing:
            raise coded(
                RuntimeError, "an interprocess event cannot have enable_timing=True"
            )
        if interprocess and cls is Event:
            return cast(Self, cls._special["interprocess"]())
        if blocking and cls is Event:
            return cast(Self, cls._special["blocking"](enable_timing, blocking=True))
        return super().__new__(
            cls,
            device="npu",
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )

    @property
    def npu_event(self) -> int:
        """The event's number; 0 before the first record."""
        return self.event_id

    @property
    def device(self) -> torch.device | None:  # type: ignore[override]
        """The device it was recorded on; None before the first record."""
        return super().device if self.event_id else None

    def __await__(self) -> Generator[Any, Any, None]:
        """Resume once the recorded work is done; raise if it failed."""
        return awaiting.on_event(self)

    def elapsed_time(self, end_event: torch.Event) -> float:
        """Return the milliseconds from this event to `end_event`. Waits for both."""
        if not isinstance(end_event, torch.Event):
            raise coded(
                TypeError,
                "elapsed_time() takes the event that ends the time, a torch.npu.Event, "
                f"but got {type(end_event).__name__}",
            )
        if not (self.event_id and end_event.event_id):
            raise coded(
                RuntimeError,
                "Both events must be recorded before calculating elapsed time.",
            )
        began, ended = map(_C.event_time_ns, (self.event_id, end_event.event_id))
        return (ended - began) / 1e6

    def recorded_time(self) -> int:
        """Return when the stream reached the event: CLOCK_MONOTONIC, nanoseconds.

        The call waits for the event, which needs enable_timing=True and a record.
        """
        return _C.event_time_ns(self.event_id)

    def __reduce_ex__(self, protocol: object) -> Any:
        raise coded(
            TypeError,
            f"cannot pickle {self!r}: other processes see an Event(interprocess=True) "
            "only",
        )

    def ipc_handle(self) -> bytes:
        """Return what from_ipc_handle() of another process needs."""
        raise coded(RuntimeError, "ipc_handle() needs an event with interprocess=True")

    @classmethod
    def from_ipc_handle(cls, device: Device, handle: bytes) -> Event:
        """Return the event of another process; a bad handle raises RuntimeError."""
        return cls._special["interprocess"]._opened(resolve(device), handle)

    @classmethod
    def _opened(cls, device: int, handle: bytes) -> Event:
        raise NotImplementedError(f"{cls.__name__} has no handles")


class _BlockingEvent(Event, asked_by="blocking"):
    """An event whose host waits sleep at once and leave the processor to others."""

    def synchronize(self) -> None:
        _C.event_sleep_until_done(self.event_id)
