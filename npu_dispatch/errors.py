"""The exceptions this package raises by itself.

A task that failed on the device is a torch.npu.DeviceError.
"""

from __future__ import annotations

__all__ = [
    "DeferredNpuCallError",
    "HostSyncError",
    "HostSyncWarning",
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
