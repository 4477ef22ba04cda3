"""The compiler's address sanitizer in this process, and the leaks that it sees.

`make test-address` builds the extension with it and starts an interpreter that has its
runtime (`sanitized_python.cpp`).
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

_THIS_PROCESS = ctypes.CDLL(None)
PRESENT = hasattr(_THIS_PROCESS, "__asan_init")


def is_compiled_in(library: Path) -> bool:
    """Whether the accesses of a library are looked at."""
    return b"__asan_report_load8" in library.read_bytes()


def report_to(file: int) -> None:
    """Let this process tell of findings there, whatever a test captures."""
    if PRESENT:
        _THIS_PROCESS.__sanitizer_set_report_fd(ctypes.c_void_p(file))


def leaks(report: Path, library: str) -> list[str]:
    """Return the stacks of what this library allocated and nobody can reach now.

    What torch, CPython and others have lost is not told: it is not of our making.
    """
    _THIS_PROCESS.__sanitizer_set_report_path(str(report).encode())
    _THIS_PROCESS.__lsan_do_recoverable_leak_check()
    _THIS_PROCESS.__sanitizer_set_report_path(b"stderr")
    lost = r"^(?:Direct|Indirect) leak of .*(?:\n .*)*"
    told = "".join(file.read_text() for file in report.parent.glob(f"{report.name}.*"))
    return [stack for stack in re.findall(lost, told, re.M) if library in stack]
