"""Which host waits a call made."""

import warnings
from collections.abc import Callable

import torch


def host_waits(call: Callable[[], object]) -> list[str]:
    """Return what sync-debug mode says about each wait within `call()`."""
    torch.npu.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.npu.set_sync_debug_mode("warn")
        try:
            call()
        finally:
            torch.npu.set_sync_debug_mode("default")
    return [str(w.message) for w in caught if w.category is torch.npu.HostSyncWarning]
