"""The compiler's sanitizer in this process, and the leaks that it sees.

`make test-address` and `make test-thread` build the extension with one and start an
interpreter that has its runtime (`sanitized_python.cpp`).
"""

import ctypes
import re
from pathlib import Path

_THIS_PROCESS = ctypes.CDLL(None)
# What each runtime has, and what the compiler calls at an access.
_RUNTIME = {"address": "__asan_init", "thread": "__tsan_init"}
_CALLED = {"address": b"__asan_report_load8", "thread": b"__tsan_read8"}
# "address" or "thread"; "" in any other interpreter.
PRESENT = next((s for s, has in _RUNTIME.items() if hasattr(_THIS_PROCESS, has)), "")


def compiled_into(library: Path) -> str:
    """Return the sanitizer that looks at a library's accesses, or ""."""
    text = library.read_bytes()
    return next((name for name, called in _CALLED.items() if called in text), "")


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
