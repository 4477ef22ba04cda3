"""Which torch this package is for."""

from __future__ import annotations

__all__ = ["TORCH_NPU_VERSION", "TORCH_VERSION", "TORCH_VERSIONS", "fits", "needed"]

# One of each minor version that the sources can be built for: the one that is tried.
# tools/torch_pin.py reads this line. A build that finds no torch takes the first.
TORCH_VERSIONS = ("2.13.0", "2.14.1")

try:
    # The one that the extension was compiled against.
    from npu_dispatch._built import TORCH_VERSION
except ImportError:  # nothing was compiled
    TORCH_VERSION = TORCH_VERSIONS[0]

# torch_npu numbers its versions as torch does; the local part says whose this is.
TORCH_NPU_VERSION = f"{TORCH_VERSION}+npu.dispatch"


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def fits(torch: str) -> bool:
    """Return whether a version of torch has the interfaces that this was built for.

    They change from one minor version to the next, not from patch to patch.
    """
    return _minor(torch) == _minor(TORCH_VERSION)


def needed() -> str:
    """Return what pip is to install."""
    return f"torch=={_minor(TORCH_VERSION)}.*"
