"""Who has touched device memory outside of a kernel, on the driver `guarded`."""

import ctypes
import functools
import os
from collections.abc import Callable

__all__ = ["taken"]


@functools.cache
def _library() -> Callable[[], bytes] | None:
    path = os.environ.get("NPU_DRIVER", "")
    if not path.endswith("libnpu_guarded.so"):
        return None
    take = ctypes.CDLL(path).npu_guarded_take
    take.restype = ctypes.c_char_p
    return take


def taken() -> str:
    """Return the stacks of those who did since the last call; "" for nobody."""
    take = _library()
    return take().decode() if take else ""
