"""The exceptions this package raises by itself.

What the engine reports arrives as RuntimeError (a task failed) or
torch.OutOfMemoryError.
"""

from __future__ import annotations

__all__ = ["DeferredNpuCallError", "TorchVersionError"]


class TorchVersionError(ImportError):
    """The torch that runs is not the torch this package was built for."""


class DeferredNpuCallError(RuntimeError):
    """A call queued before initialisation failed when it ran."""
