"""The race sanitizer's switch, named as torch.cuda._sanitizer's is.

It works below the dispatcher, on what the streams are given: see
docs/sanitizer.md for what it finds and what it cannot see.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

import torch

from npu_dispatch import _C
from npu_dispatch.config import Config
from npu_dispatch.errors import NPUSanitizerErrors
from npu_dispatch.npu.debugging.race_findings import report_of
from npu_dispatch.npu.runtime.start import _lazy_call
from npu_dispatch.observe.segment.layout import REPORT_KINDS
from npu_dispatch.sanitizer import Findings, Report, Suppressions

__all__ = [
    "NPUSanitizerErrors",
    "clear_reports",
    "disable_npu_sanitizer",
    "enable_npu_sanitizer",
    "is_enabled",
    "reports",
]

_MODES = ("raise", "report")


class _State:
    """The state, guarded by `lock`: findings arrive on any thread that launches."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.mode: str | None = None
        self.suppressions = Suppressions()
        self.reports: dict[tuple[object, ...], Report] = {}
        # For the command that has started this process, once that uses the device.
        self.findings: Findings | None = None


_state = _State()


def enable_npu_sanitizer(
    mode: str = "raise",
    suppressions: Suppressions | str | os.PathLike[str] | Iterable[str] | None = None,
) -> None:
    """Look for accesses that nothing orders, from now on. Idempotent.

    With `mode` "raise", the second access of a pair does not take place and raises
    NPUSanitizerErrors; with "report", findings are collected for reports().
    `suppressions`: a file, or its lines. A second call changes the mode. The call
    waits for what is queued already.
    """
    if mode not in _MODES:
        raise ValueError(f"mode must be one of {_MODES}, not {mode!r}")
    rules = _read(suppressions)
    with _state.lock:
        if _state.mode is None:
            _C.sanitizer_start(_found)  # first: it raises where there is no device
            _watch_host_uses()
            _watch_new_threads()
        _state.mode = mode
        if suppressions is not None:
            _state.suppressions = rules


def disable_npu_sanitizer() -> None:
    """Stop looking, and keep reports(). Does nothing when the sanitizer is off."""
    with _state.lock:
        if _state.mode is None:
            return
        _state.mode = None
        _state.suppressions = Suppressions()
        _C.sanitizer_stop()
        _forget_host_uses()
        _forget_new_threads()


def is_enabled() -> bool:
    """Return whether the sanitizer is on."""
    return _state.mode is not None


def reports() -> list[Report]:
    """Return what was found since the last clear_reports(), once for each place."""
    with _state.lock:
        return list(_state.reports.values())


def clear_reports() -> None:
    """Forget what was found."""
    with _state.lock:
        _state.reports.clear()


def enable_as_configured(config: Config) -> None:
    """Obey the environment; in mode "report", tell the reports at the end.

    Under `npu-dispatch sanitize` they are told to that command. Where there is no
    device it warns: import torch works, and the first use raises.
    """
    assert config.sanitizer is not None
    try:
        enable_npu_sanitizer(config.sanitizer, config.sanitizer_suppressions)
    except RuntimeError as error:
        warnings.warn(f"npu_dispatch: the sanitizer is off: {error}", stacklevel=2)
        return
    folder = config.sanitizer_findings
    if folder is not None:
        _lazy_call(functools.partial(_begin_findings, Path(folder), config.rank))
    if folder is not None or config.sanitizer == "report":
        atexit.register(_tell_at_end)
        os._exit = _exit_when_told


def _begin_findings(folder: Path, rank: int) -> None:
    with contextlib.suppress(OSError):  # the command has ended before this process
        _state.findings = Findings(folder, rank if rank >= 0 else None)


def _tell_at_end() -> None:
    """Tell the reports; without the lock, which a thread that is stopped may hold."""
    found = list(_state.reports.values())
    if _state.findings is not None:
        _state.findings.end(found)
    elif not Config.read().sanitizer_findings:
        for report in found:
            print(report.text(), file=sys.stderr)


_exit = os._exit


def _exit_when_told(status: int) -> NoReturn:
    """End the process at once, as os._exit() does: forked ones always end so."""
    _tell_at_end()
    sys.stderr.flush()
    _exit(status)


def _read(
    suppressions: Suppressions | str | os.PathLike[str] | Iterable[str] | None,
) -> Suppressions:
    if suppressions is None:
        return Suppressions()
    if isinstance(suppressions, Suppressions):
        return suppressions
    if isinstance(suppressions, str | os.PathLike):
        return Suppressions.read(Path(suppressions))
    return Suppressions(suppressions)


def _found(findings: list[dict[str, Any]]) -> NPUSanitizerErrors | None:
    """Take the engine's findings; return the error for the access, if there is one."""
    with _state.lock:
        new = []
        for finding in findings:
            report = report_of(finding)
            if _state.suppressions.match(report):
                continue
            new.append(report)
            known = _state.reports.get(report.key)
            _state.reports[report.key] = known.again() if known else report
            if known is None and _state.findings is not None:
                _state.findings.add(report)
            _count(finding)
        if new and _state.mode == "raise":
            return NPUSanitizerErrors(new)
    return None


# What npu_dispatch.observe.segment calls each kind.
_COUNTED_AS = {
    "write/write": "race_ww",
    "read/write": "race_rw",
    "allocator-reuse": "missing_record_stream",
    "use-after-free": "use_after_free",
    "host-read": "host_read",
    "host-write": "host_read",
    "unordered-foreign-launch": "unordered_raw_launch",
    "overwritten-result": "overwritten_result",
}


def _count(finding: dict[str, Any]) -> None:
    first, second = finding["first"], finding["second"]
    kind = _COUNTED_AS[finding["kind"]]
    if finding["kind"] == "allocator-reuse" and first["stream"] == finding["stream"]:
        kind = "alloc_reuse"  # record_stream would not help on the block's own stream
    device = max(second["device"], first["device"], 0)
    _C.sanitizer_count_report(device, REPORT_KINDS.index(kind))


# The methods that use a tensor's memory without an operator, or let the program do so
# later: class, name, what a report calls it ("": no use by itself), and whether it
# writes the tensor that it is a method of.
_HOST_USES = (
    (torch.Tensor, "numpy", "numpy", False),
    (torch.Tensor, "tolist", "tolist", False),
    (torch.Tensor, "__dlpack__", "from_dlpack", False),
    (torch.Tensor, "data_ptr", "", False),
    (torch.UntypedStorage, "data_ptr", "", False),
    (torch.Tensor, "apply_", "apply_", True),
    (torch.Tensor, "map_", "map_", True),
    (torch.UntypedStorage, "_write_file", "save", False),  # pickle and old files
    (torch._C.PyTorchFileWriter, "write_record", "save", False),  # torch.save
)
# Of these, the ones whose result is an array or a pointer of the memory.
_LET_OUT = frozenset({"numpy", "__dlpack__", "data_ptr"})
_originals: dict[tuple[type, str], Any] = {}  # None: inherited


def _watch_host_uses() -> None:
    for owner, name, by, writes in _HOST_USES:
        _originals[owner, name] = vars(owner).get(name)
        watched = _watched(getattr(owner, name), by, writes, name in _LET_OUT)
        setattr(owner, name, watched)


def _watched(original: Any, by: str, writes: bool, lets_out: bool) -> Any:
    @functools.wraps(original)
    def use(*args: Any, **kwargs: Any) -> Any:
        for number, value in enumerate(args):
            if isinstance(value, torch.UntypedStorage) and value.device.type == "cpu":
                value = torch.empty(0, dtype=torch.uint8).set_(value)
            if isinstance(value, torch.Tensor) and by:
                _C.sanitizer_host_uses(value, by, writes and number == 0)
            if isinstance(value, torch.Tensor) and lets_out:
                _C.sanitizer_host_escapes(value)
        return original(*args, **kwargs)

    return use


def _forget_host_uses() -> None:
    for (owner, name), original in _originals.items():
        if original is None:
            delattr(owner, name)  # the base's own is inherited again
        else:
            setattr(owner, name, original)
    _originals.clear()


# A thread that queued a copy looks at its own host operators while the copy is under
# way. Any other thread has to look at them all the time.
_start_thread: Any = threading.Thread.start  # what ours replaced and calls
_threads_are_watched = False


def _start_watched_thread(self: threading.Thread) -> None:
    run = self.run

    def watched() -> None:
        vars(self).pop("run", None)  # or this and the thread would keep each other
        _C.sanitizer_watch_thread()
        run()

    self.run = watched  # type: ignore[method-assign]
    _start_thread(self)


def _watch_new_threads() -> None:
    global _start_thread, _threads_are_watched
    if not _threads_are_watched:
        _start_thread = threading.Thread.start
        threading.Thread.start = _start_watched_thread  # type: ignore[method-assign]
        _threads_are_watched = True


def _forget_new_threads() -> None:
    global _threads_are_watched
    # Else somebody has wrapped our function, which has to stay, and does no harm.
    if threading.Thread.start is _start_watched_thread:
        threading.Thread.start = _start_thread  # type: ignore[method-assign]
        _threads_are_watched = False


def _begin_anew_in_child() -> None:
    """Look at a forked child's own accesses; none where device work is refused.

    What the parent has found is the parent's.
    """
    mode, rules = _state.mode, _state.suppressions
    _state.lock = threading.RLock()
    _state.reports, _state.findings = {}, None
    disable_npu_sanitizer()
    if mode is not None and not _C.in_bad_fork():
        enable_npu_sanitizer(mode, rules)


os.register_at_fork(after_in_child=_begin_anew_in_child)
