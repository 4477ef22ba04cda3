"""What register() changes in torch, where torch does not ask the device itself."""

from __future__ import annotations

import importlib
import logging

__all__ = ["apply", "missing"]

_log = logging.getLogger(__name__)
# Each module and its function.
_CHANGES = {
    "autocast": "tell_torch",
    "backward": "leave_nothing",
    "cross_entropy": "sum_as_on_cpu",
    "dlpack": "name_the_device",
    "global_state": "keep_in_order",
    "kernels": "tell_of_new_ones",
    "optimizers": "count_steps",
    "pinned_state": "pin_on_npu",
    "profiled_memory": "report_to_profiles",
    "data_parallel": "serve_torch",
    "lazy_modules": "let_them_move",
    "multiprocessing": "serve",
    "printing": "copy_once",
    "sync_batch_norm": "compose",
}
_missing: dict[str, Exception] = {}


def apply() -> None:
    """Make all changes; to be called once, when torch knows the device.

    They need private names of torch. Where a version of torch lacks one, that costs
    the change and a warning, and not the device.
    """
    for module, function in _CHANGES.items():
        try:
            getattr(importlib.import_module(f"{__name__}.{module}"), function)()
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            _missing[module] = error
            _log.warning("this torch is not changed as %s.py would: %s", module, error)


def missing() -> dict[str, Exception]:
    """Return which changes could not be made, by module, with the reason."""
    return dict(_missing)
