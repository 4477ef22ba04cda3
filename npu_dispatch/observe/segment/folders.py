"""Where processes leave segments and traces: this user's, and all users'.

csrc/stats/owner.h says which of its folders a process takes, and why. A reader
looks in all of them, as cron, ssh and services have other environments.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from npu_dispatch.config import runtime_folder
from npu_dispatch.observe.segment.proc_stat import pid_namespace

__all__ = ["SEGMENTS", "TRACES", "all_folders", "not_ours", "own_file", "own_folders"]

SEGMENTS, TRACES = "npu_dispatch", "npu_dispatch-trace"
_SHARED, _RUNTIME = Path("/dev/shm"), Path("/run/user")


def _candidates(name: str) -> list[Path]:
    user = str(os.getuid())
    shared, usual = _SHARED / f"{name}-{user}", _RUNTIME / user / name
    asked = runtime_folder()
    return list(dict.fromkeys([shared, asked / name if asked else usual, usual]))


def _owner(folder: Path) -> int | None:
    """Return whose folder it is; -1 for what is no folder, None for nothing."""
    try:
        found = folder.lstat()
    except OSError:
        return None
    return found.st_uid if stat.S_ISDIR(found.st_mode) else -1


def own_folders(name: str) -> list[Path]:
    """Return where this user's processes have such files. Some may be missing."""
    mine = (None, os.getuid())
    return [folder for folder in _candidates(name) if _owner(folder) in mine]


def not_ours(name: str) -> list[str]:
    """Return a sentence for each of those places that somebody else has taken."""
    told = []
    for folder in _candidates(name):
        owner = _owner(folder)
        if owner == -1:
            told.append(f"{folder} is not a folder: nothing is read from it")
        elif owner not in (None, os.getuid()):
            told.append(
                f"{folder} belongs to user {owner}, not to user {os.getuid()}: "
                "nothing is read from it"
            )
    return told


def own_file(name: str, pid: int) -> Path:
    """Return where a process of this user has such a file, or would have it."""
    # The second name is used where another container has that process number.
    names = (f"{pid}-{pid_namespace()}", str(pid))
    files = [folder / one for folder in own_folders(name) for one in names]
    there = (file for file in files if file.exists())
    return next(there, files[1] if files else _candidates(name)[0] / str(pid))


def all_folders(name: str) -> list[Path]:
    """Return the folders of all users. What this one may not read can be among them.

    A folder counts that belongs to the user whose number it has.
    """
    found = list(own_folders(name))
    for folder in sorted(_SHARED.glob(f"{name}-*")):
        if folder.name.removeprefix(f"{name}-") == str(_owner(folder)):
            found.append(folder)
    for folder in sorted(_RUNTIME.glob(f"*/{name}")):
        if folder.parent.name == str(_owner(folder)):
            found.append(folder)
    return list(dict.fromkeys(found))
