"""Every rank saves its calls when one of them fails, if a file is named for them.

A rank that failed knows only its own side. `fr_trace` and `npu-dispatch dump
--all-ranks FOLDER` need the calls of all, also of those that were not in the group
that failed, so the first to fail tells the others.
"""

from __future__ import annotations

import atexit
import threading
import time
from pathlib import Path
from typing import Any

from npu_dispatch import _C
from npu_dispatch.config import Config

__all__ = ["save_at_a_failure", "save_calls"]

_KEY = "npu_dispatch/failed"
_POLL_S = 1.0
_started = threading.Lock()  # held for good by the first call


def save_calls() -> Path | None:
    """Save this rank's calls to TORCH_FR_DUMP_TEMP_FILE and its rank.

    Returns the file; None where the variable is not set, or nothing is known.
    """
    from npu_dispatch.ranks.flight_recorder import dump_of, save
    from npu_dispatch.stats import StatsReader

    prefix, segment = Config.read().flight_recorder_file, _C.segment_path()
    if not prefix or not segment:
        return None
    with StatsReader(Path(segment)) as reader:
        dump = dump_of(reader)
    return save(dump, prefix) if dump else None


def save_at_a_failure(store: Any) -> None:
    """Save this rank's calls when a rank fails; all ranks pass the same store.

    A second call does nothing.
    """
    wanted = Config.read().flight_recorder_file and _C.segment_path()
    if not wanted or not _started.acquire(blocking=False):
        return
    # Of its own: a rank that waits for the store would keep the other one.
    waiter = _Waiter(store.clone())
    threading.Thread(target=waiter.run, name="npu-save-calls", daemon=True).start()
    # A rank that failed may end sooner than the thread looks.
    atexit.register(waiter.look)


class _Waiter:
    def __init__(self, store: Any) -> None:
        self._store = store
        self._saved = False
        self._mutex = threading.Lock()  # held by who looks

    def run(self) -> None:
        while not self.look(others=True):
            time.sleep(_POLL_S)

    def look(self, others: bool = False) -> bool:
        """Save the calls if this rank has failed, or one of the others, the first time.

        Returns whether there is no more to wait for.
        """
        from torch.distributed import DistError

        with self._mutex:
            try:
                if not self._saved and _has_failed():
                    self._saved = True
                    save_calls()
                    self._store.set(_KEY, "")
                elif others and not self._saved and self._store.check([_KEY]):
                    self._saved = True
                    save_calls()
            except DistError:  # the store has ended with its rank
                return True
            return self._saved


def _has_failed() -> bool:
    from npu_dispatch.stats import StatsReader
    from npu_dispatch.stats.collective_totals import read_totals

    with StatsReader(Path(_C.segment_path())) as reader:
        return any(total.failed for total in read_totals(*reader.behind()))
