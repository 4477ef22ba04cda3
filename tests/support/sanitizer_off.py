"""The race sanitizer off for a test, whatever the run's own setting."""

import contextlib
from collections.abc import Iterator

import torch

from npu_dispatch.npu import _sanitizer


@contextlib.contextmanager
def sanitizer_off() -> Iterator[None]:
    """Within it the sanitizer starts off and has found nothing; then as before."""
    was = _sanitizer._state.mode
    _sanitizer.disable_npu_sanitizer()
    torch.npu.synchronize()
    _sanitizer.clear_reports()
    try:
        yield
    finally:
        torch.npu.synchronize()
        _sanitizer.disable_npu_sanitizer()
        _sanitizer.clear_reports()
        if was:
            _sanitizer.enable_npu_sanitizer(was)
