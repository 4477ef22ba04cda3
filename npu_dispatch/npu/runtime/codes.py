"""The line with a code that ends torch_npu's messages.

    [ERROR] 2026-01-31-12:00:00 (PID:7, Device:0, RankID:-1) ERR00002 PTA invalid type

Programs and log readers written for torch_npu look for it, so messages have it while
`import torch_npu` means this package, and at no other time. As with torch_npu, they
do not have it in an interactive interpreter or with
TORCH_NPU_COMPACT_ERROR_OUTPUT=1.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from typing import TypeVar

from npu_dispatch import _C, import_alias
from npu_dispatch.config import Config

E = TypeVar("E", bound=BaseException)

ACL_FAILED = 100  # something that was queued has failed

_CAUSES = {
    1: "invalid parameter",
    2: "invalid type",
    3: "invalid value",
    7: "feature not supported",
    ACL_FAILED: "call acl api failed",
}
# The first class that fits gives the code.
_BY_CLASS: tuple[tuple[type[BaseException], int], ...] = (
    (TypeError, 2),
    (ValueError, 3),
    (NotImplementedError, 7),
)


def coded(kind: type[E], message: str, cause: int = 0) -> E:
    """Return an error whose message ends with the line, if that is wanted.

    cause: the code's last three digits; by default what the error's class says.
    """
    config = Config.read()
    if (
        config.compact_errors
        or not import_alias.is_alias("torch_npu")
        or hasattr(sys, "ps1")  # interactive
    ):
        return kind(message)
    cause = cause or next((n for base, n in _BY_CLASS if issubclass(kind, base)), 1)
    now = time.strftime("%Y-%m-%d-%H:%M:%S")
    where = f"PID:{os.getpid()}, Device:{_C.current_device()}, RankID:{config.rank}"
    line = f"[ERROR] {now} ({where}) ERR00{cause:03} PTA {_CAUSES[cause]}"
    return kind(f"{message}\n{line}")


def expect_one_of(
    value: object, allowed: Sequence[object], name: str, kind: type[Exception]
) -> None:
    """Raise `kind` unless an argument has one of some values."""
    if value not in allowed:
        *first, last = map(str, allowed)
        listed = f"{', '.join(first)} or {last}"
        raise coded(kind, f"{name} must be {listed}, but got {value!r}")


def expect(value: object, kind: type, name: str) -> None:
    """Raise TypeError unless an argument is of a type; a bool is no int here."""
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        article = "an" if kind.__name__[0] in "aeiou" else "a"
        raise coded(
            TypeError,
            f"{name} must be {article} {kind.__name__}, but got {type(value).__name__}",
        )
