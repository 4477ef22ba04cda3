"""Where processes leave segments and traces, and how long those of the dead are kept.

csrc/stats/owner.h says which of its folders a process takes, and why. A reader
looks in all of them, as cron, ssh and services have other environments.

A process that ends by itself removes its segment and its trace. One that was killed
cannot. The first reader or new process that finds its file names it NAME.dead, so that
nobody takes it for a living process's and a new process of that number leaves it alone.
The newest few of these files are kept for an hour from then on.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time
from collections.abc import Iterable
from pathlib import Path

from npu_dispatch.config import runtime_folder
from npu_dispatch.observe.segment.system import pid_namespace

SEGMENTS, TRACES = "npu_dispatch", "npu_dispatch-trace"
SUFFIX = ".dead"  # csrc/stats/owner.h has the same rule for processes that start
KEPT_S = 3600.0
KEPT_SEGMENTS = 16
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
    named = [
        *(
            (one, one.name.removeprefix(f"{name}-"))
            for one in _SHARED.glob(f"{name}-*")
        ),
        *((one, one.parent.name) for one in _RUNTIME.glob(f"*/{name}")),
    ]
    theirs = [folder for folder, user in sorted(named) if user == str(_owner(folder))]
    return list(dict.fromkeys([*own_folders(name), *theirs]))


def files_in(paths: Iterable[Path]) -> list[Path]:
    """Return files, and those in folders but hidden ones."""
    found: list[Path] = []
    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        found += [file for file in inside if not file.name.startswith(".")]
    return found


def aside(path: Path) -> Path:
    """Return the name of a dead process's file."""
    return path.with_name(path.name + SUFFIX)


def lay_aside(path: Path) -> None:
    """Keep a dead process's file for a postmortem, under another name.

    Another user's files are left alone.
    """
    with contextlib.suppress(OSError):
        if path.parent.stat().st_uid != os.geteuid():
            return
    with contextlib.suppress(OSError):  # the file system may be read-only
        os.utime(path)
        path.rename(aside(path))
    sweep(path.parent)


def remains(directory: Path) -> list[Path]:
    """Return what was laid aside, the newest first."""
    found = []
    with contextlib.suppress(OSError):
        for path in directory.iterdir():
            if path.name.endswith(SUFFIX):
                with contextlib.suppress(OSError):
                    found.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def sweep(directory: Path) -> None:
    """Remove what has been kept for an hour, and all but the newest few."""
    oldest = time.time() - KEPT_S
    for number, path in enumerate(remains(directory)):
        with contextlib.suppress(OSError):
            if number >= KEPT_SEGMENTS or path.lstat().st_mtime < oldest:
                path.unlink()
