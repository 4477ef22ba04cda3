"""torch_npu.utils.collect_env: the version of a toolkit that is not installed."""

from __future__ import annotations


def get_cann_version(module: str = "CANN") -> str:
    """Return "", as the vendor's function does where the toolkit is missing."""
    return ""
