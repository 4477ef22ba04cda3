"""The exceptions this package raises by itself.

What the engine reports arrives as RuntimeError (a task failed) or
torch.OutOfMemoryError.
"""

from __future__ import annotations

from typing import Any

__all__ = ["DeferredNpuCallError", "NPUSanitizerErrors", "TorchVersionError"]


class TorchVersionError(ImportError):
    """The torch that runs is not the torch this package was built for."""


class DeferredNpuCallError(RuntimeError):
    """A call queued before initialisation failed when it ran."""


class NPUSanitizerErrors(Exception):  # noqa: N818 - upstream's name, for ours
    """Accesses that nothing orders. `errors`: one npu_dispatch.sanitizer.Report each.

    Raised by the launch, or the host's own access, that is the second of the two;
    it has not taken place.
    """

    def __init__(self, errors: list[Any]) -> None:
        super().__init__(errors)
        self.errors = errors

    def __str__(self) -> str:
        return "\n\n".join(error.text() for error in self.errors)
