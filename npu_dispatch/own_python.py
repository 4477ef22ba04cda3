"""How this package starts Python: programs of its own, and those of users."""

from __future__ import annotations

import subprocess
import sys

__all__ = ["own_python", "users_python"]


def own_python(*words: str) -> list[str]:
    """Return the command that runs `-m MODULE` or `-c CODE` in this interpreter.

    It imports nothing from the current directory, where anybody may have put a file
    named like a module of Python's.
    """
    return [sys.executable, "-P", *words]


def users_python(*words: str) -> list[str]:
    """Return the command that runs a user's program as this interpreter would."""
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, *words]
