"""How this package starts Python programs of its own."""

from __future__ import annotations

import sys

__all__ = ["own_python"]


def own_python(*words: str) -> list[str]:
    """Return the command that runs `-m MODULE` or `-c CODE` in this interpreter.

    It imports nothing from the current directory, where anybody may have put a file
    named like a module of Python's.
    """
    return [sys.executable, "-P", *words]
