"""The exceptions this package raises by itself.

A task that failed on the device is a torch.npu.DeviceError.
"""

from __future__ import annotations

from typing import Any

__all__ = [
    "DeferredNpuCallError",
    "HostSyncError",
    "HostSyncWarning",
    "NPUSanitizerErrors",
    "TorchVersionError",
]


class TorchVersionError(ImportError):
    """The torch that runs is not the torch this package was built for."""


class DeferredNpuCallError(RuntimeError):
    """A call queued before initialisation failed when it ran."""


class HostSyncError(RuntimeError):
    """A host wait where set_sync_debug_mode("error") or sync_guard forbids it."""


class HostSyncWarning(UserWarning):
    """A host wait where set_sync_debug_mode("warn") or sync_guard reports it."""


class NPUSanitizerErrors(Exception):  # noqa: N818 - upstream's name, for ours
    """Accesses that nothing orders; `errors` has a sanitizer.Report for each pair.

    It is raised by the second access of the two, a launch or the host's own, which
    then does not take place.
    """

    def __init__(self, errors: list[Any]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "\n\n".join(error.text() for error in self.errors)
