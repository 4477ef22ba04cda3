"""Hidden host waits: found as they happen, and counted by line.

Every place where the host waits for a device passes one function of the
engine; while somebody watches, that function asks here.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

import torch

from npu_dispatch import _C
from npu_dispatch.errors import HostSyncError, HostSyncWarning
from npu_dispatch.observe.segment.layout import WAIT_REASONS
from npu_dispatch.words import stream_title

_MODES = {"default": 0, "warn": 1, "error": 2}
# Waits that the program asks for by name, and those of a launch for space in its
# queue. They are reported with explicit=True only.
_EXPLICIT = frozenset(
    {"stream_sync", "event_sync", "device_sync", "exit", "graph", "full_queue"}
)


@dataclass(frozen=True, slots=True)
class _Rule:
    mode: int = 0
    explicit: bool = False
    as_cuda: bool = False


_process_rule = _Rule()
_process_lock = threading.Lock()
# What torch.cuda's mode reports, and ours by itself does not: Stream.synchronize(), and
# blocking copies of any size to the device, which here need no wait below 4 MiB.
_AS_CUDA = frozenset({"stream_sync", "staged_copy"})
# These wait for some of a stream's tasks or for none, the others for all.
_NOT_FOR_ALL = frozenset({"event_sync", "full_queue", "staged_copy"})
# How many tasks a stream had been given, by device and stream, at the last wait for
# all of them. A wait with no launch since then waits for nothing.
_waited_up_to: dict[tuple[int, int], int] = {}
# The innermost sync_guard or allow_sync of this thread and asyncio task.
_scope: ContextVar[_Rule | None] = ContextVar("npu_sync_rule", default=None)


def _mode_number(mode: int | str) -> int:
    number = _MODES.get(mode, -1) if isinstance(mode, str) else mode
    if number not in _MODES.values():
        raise RuntimeError(
            f"invalid sync debug mode {mode!r}: expected 'default' (0), 'warn' (1) "
            "or 'error' (2)"
        )
    return int(number)


def set_sync_debug_mode(debug_mode: int | str, *, explicit: bool = False) -> None:
    """Report ("warn", 1) or forbid ("error", 2) hidden host waits in the process.

    These are caught: `.item()`, `bool(t)`, blocking copies, operators whose result
    shape depends on data, and the allocator's waits. With `explicit`, so are
    synchronize() of streams, events and devices, and launches that find their queue
    full. In "warn" mode Python shows one warning for each line, and none for a wait
    that follows another one without a launch in between. In "error" mode
    HostSyncError is raised and the wait does not happen. A mode other than "default"
    (0), "warn" and "error" raises RuntimeError. Unless it switches catching off, the
    call warns that this is a prototype. After npu_dispatch.redirect_cuda(), or under
    `--cuda`, it catches what CUDA waits for: also Stream.synchronize(), blocking copies
    to the device of any size, and waits with no launch before them. Mirrors
    torch.cuda.set_sync_debug_mode.
    """
    mode = _mode_number(debug_mode)
    if mode:
        warnings.warn(
            "set_sync_debug_mode is a prototype: what it catches may change",
            stacklevel=2,
        )
    as_cuda = torch.cuda.set_sync_debug_mode is set_sync_debug_mode  # redirected
    set_process_rule(mode, explicit=explicit, as_cuda=as_cuda)


def set_process_rule(
    debug_mode: int | str, *, explicit: bool = False, as_cuda: bool = False
) -> None:
    """Do what set_sync_debug_mode does, for callers that chose a mode knowingly."""
    global _process_rule
    mode = _mode_number(debug_mode)
    with _process_lock:
        if (mode != 0) != (_process_rule.mode != 0):
            _C.watch_syncs(mode != 0)
        _process_rule = _Rule(mode, explicit, as_cuda)
        _waited_up_to.clear()


def get_sync_debug_mode() -> int:
    """Return the process-wide mode: 0 (default), 1 (warn) or 2 (error).

    Mirrors torch.cuda.get_sync_debug_mode.
    """
    return _process_rule.mode


@contextlib.contextmanager
def _scoped(rule: _Rule) -> Iterator[None]:
    _C.watch_syncs(True)
    token = _scope.set(rule)
    try:
        yield
    finally:
        _scope.reset(token)
        _C.watch_syncs(False)


def sync_guard(
    mode: int | str, *, explicit: bool = False
) -> contextlib.AbstractContextManager[None]:
    """Return a context in which this thread's or asyncio task's waits are caught.

    `mode` and `explicit` are those of set_sync_debug_mode, which the context
    overrides while it is open. Other threads and tasks are not concerned.
    """
    return _scoped(_Rule(_mode_number(mode), explicit))


def allow_sync(reason: str) -> contextlib.AbstractContextManager[None]:
    """Return a context in which waits are allowed; `reason` is for the reader only."""
    if not reason:
        raise ValueError("allow_sync: say in a word why this wait is fine")
    return _scoped(_Rule())


@dataclass(frozen=True, slots=True)
class SyncSite:
    """Where the host waited for a device, how often and for how long."""

    reason: str
    """One of npu_dispatch.observe.segment.layout.WAIT_REASONS, or "full_queue"."""
    where: str
    """File, line and function of the nearest frame outside of torch."""
    count: int
    seconds: float


def sync_report() -> list[SyncSite]:
    """Return where the host has waited since the start, longest first.

    Waits are counted in every debug mode. Those that took no time, because the work
    was done, are left out.
    """
    totals: dict[tuple[str, str], tuple[int, int]] = {}
    for reason, site, count, ns in _C.sync_report():
        key = (reason, _C.call_line(site))
        counted, waited = totals.get(key, (0, 0))
        totals[key] = (counted + count, waited + ns)
    sites = [
        SyncSite(reason, where, count, ns / 1e9)
        for (reason, where), (count, ns) in totals.items()
    ]
    return sorted(sites, key=lambda site: -site.seconds)


def reset_sync_report() -> None:
    """Forget the waits counted so far."""
    _C.reset_sync_report()


def _applying(reason: str) -> _Rule:
    rule = _scope.get() or _process_rule
    if reason in _AS_CUDA and rule.as_cuda:
        return rule
    if reason == "staged_copy" or (reason in _EXPLICIT and not rule.explicit):
        return _Rule()
    return rule


def _describe(reason: str, op: str, device: int, stream: int) -> str:
    what = op or f"{reason.removesuffix('_sync')}.synchronize()"
    if reason == "full_queue":
        what = "a launch"
    where = _C.call_line(_C.current_call_site())
    return f"{what} ({reason}) on {stream_title(device, stream)} at {where or '?'}"


def _count_violation(device: int, reason: str, *, refused: bool) -> None:
    if reason in WAIT_REASONS:
        _C.count_sync_violation(device, refused, WAIT_REASONS.index(reason))


def _before_wait(
    reason: str, op: str, device: int, stream: int, pending: int, _ns: int
) -> None:
    if _applying(reason).mode == _MODES["error"]:
        _count_violation(device, reason, refused=True)
        raise HostSyncError(
            "called a synchronizing NPU operation: "
            f"{_describe(reason, op, device, stream)} would wait for {pending} "
            "queued task(s). Move it out of this code, or wrap it in "
            "torch.npu.allow_sync(reason)."
        )


def _after_wait(
    reason: str, op: str, device: int, stream: int, _pending: int, _ns: int
) -> None:
    # Not by `pending`, which depends on how fast the device was.
    tail = _C.stream_tail(device, stream)
    for_nothing = _waited_up_to.get((device, stream)) == tail
    if reason not in _NOT_FOR_ALL:
        _waited_up_to[device, stream] = tail
    rule = _applying(reason)
    if rule.mode != _MODES["warn"] or (for_nothing and not rule.as_cuda):
        return
    _count_violation(device, reason, refused=False)
    # Without times and counts, so that Python shows equal warnings once.
    warnings.warn(
        "called a synchronizing NPU operation: "
        f"{_describe(reason, op, device, stream)}; "
        "torch.npu.sync_report() says how long each line has waited",
        HostSyncWarning,
        stacklevel=2,
    )


_C.set_sync_watchers(_before_wait, _after_wait)
