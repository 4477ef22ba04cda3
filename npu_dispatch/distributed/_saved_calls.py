"""Every rank saves its calls when one of them fails, if a file is named for them.

A rank that failed knows only its own side. `fr_trace` and `npu-dispatch dump
--all-ranks FOLDER` need the calls of all, also of those that were not in the group
that failed; each hears of the failure by the channel of the job.
"""

from __future__ import annotations

import atexit
import threading
from pathlib import Path

from npu_dispatch import _C
from npu_dispatch.config import Config
from npu_dispatch.npu.runtime.start import start_until_exit

_mutex = threading.Lock()  # held by who saves: a process that ends waits for it
_saved = False


def save_calls() -> Path | None:
    """Save this rank's calls to TORCH_FR_DUMP_TEMP_FILE and its rank.

    Returns the file; None where the variable is not set, or nothing is known.
    """
    from npu_dispatch.observe.judge.flight_recorder import dump_of, save
    from npu_dispatch.observe.segment import StatsReader

    prefix, segment = Config.read().flight_recorder_file, _C.segment_path()
    if not prefix or not segment:
        return None
    with StatsReader(Path(segment)) as reader:
        dump = dump_of(reader)
    return save(dump, prefix) if dump else None


def save_at_a_failure() -> None:
    """Save this rank's calls when the job fails that it has just joined."""
    if not Config.read().flight_recorder_file or not _C.segment_path():
        return
    waits = threading.Thread(target=_wait, name="npu-save-calls", daemon=True)
    start_until_exit(waits, _C.end_job_waits)
    # A rank that failed may end sooner than the thread runs.
    atexit.unregister(_save_if_failed)
    atexit.register(_save_if_failed)


def _wait() -> None:
    if _C.wait_for_job_failure():
        _save_once()


def _save_if_failed() -> None:
    if _C.job_failure():
        _save_once()


def _save_once() -> None:
    global _saved
    with _mutex:
        if not _saved:
            save_calls()
            _saved = True
