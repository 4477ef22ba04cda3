"""Options under the vendor's names, checked and kept."""

from __future__ import annotations

import warnings
from pathlib import Path

from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.settings import switches

__all__ = ["set_aoe", "set_option"]

# The values that each option may have; with None, any text.
_OPTIONS: dict[str, frozenset[str] | None] = {
    "ACL_PRECISION_MODE": frozenset({"allow_fp32_to_fp16", "must_keep_origin_dtype"}),
    "ACL_OP_SELECT_IMPL_MODE": frozenset({"high_performance", "high_precision"}),
    "ACL_AICORE_NUM": frozenset(map(str, range(1, 33))),
    "ACL_OP_DEBUG_LEVEL": frozenset(map(str, range(5))),
    "ACL_OP_COMPILER_CACHE_MODE": frozenset({"disable", "enable", "force"}),
    "ACL_OPTYPELIST_FOR_IMPLMODE": None,
    "ACL_DEBUG_DIR": None,
    "ACL_OP_COMPILER_CACHE_DIR": None,
    "ACL_OP_DEBUG_OPTION": None,
    "MM_BMM_ND_ENABLE": frozenset({"disable", "enable"}),
}
_DEPRECATED = {"ACL_OP_SELECT_IMPL_MODE", "ACL_OPTYPELIST_FOR_IMPLMODE"}

_kept: dict[str, str] = {}


def set_option(option: dict[str, object]) -> None:
    """Set options by name. All are checked before any is set.

    Raises TypeError for anything but a dict with str keys, RuntimeError for an unknown
    name, and ValueError for a value that the option cannot have. Kernels here do not
    depend on options; MM_BMM_ND_ENABLE also calls set_mm_bmm_format_nd().
    """
    if not isinstance(option, dict):
        raise coded(
            TypeError, f"option must be a dict, but got {type(option).__name__}"
        )
    checked = {}
    for name, value in option.items():
        if not isinstance(name, str):
            raise coded(TypeError, f"an option's name must be a str, but got {name!r}")
        if name not in _OPTIONS:
            raise coded(RuntimeError, f"invalid npu option name: {name}")
        allowed, text = _OPTIONS[name], str(value)
        if allowed is not None and text not in allowed:
            raise coded(
                ValueError,
                f"{name} must be one of {', '.join(sorted(allowed))}, but got {text}",
            )
        checked[name] = text
    for name in checked:
        if name in _DEPRECATED:
            warnings.warn(f"npu option {name} is deprecated", stacklevel=2)
    _kept.update(checked)
    if "MM_BMM_ND_ENABLE" in checked:
        switches.set_mm_bmm_format_nd(checked["MM_BMM_ND_ENABLE"] == "enable")


def _get_options() -> dict[str, str]:
    """Return what has been set."""
    return dict(_kept)


def set_aoe(dump_path: str) -> None:
    """Make the folder for the tuner's subgraphs; warn that none are written."""
    if not isinstance(dump_path, str):
        raise coded(
            TypeError, f"dump_path must be a str, but got {type(dump_path).__name__}"
        )
    Path(dump_path).mkdir(parents=True, exist_ok=True)
    warnings.warn("a virtual npu has no tuner: nothing is written", stacklevel=2)
