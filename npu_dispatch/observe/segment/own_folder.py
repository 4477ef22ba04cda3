"""Folders from which code is loaded, which only this user may change.

The shared temporary folder lets anybody make a folder of a known name first.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from npu_dispatch.observe.segment.untrusted_file import UnsafeFileError

__all__ = ["own_folder", "who_may_change"]


def own_folder(path: Path) -> Path:
    """Return the folder without links in its path; make it for this user if missing.

    Raises UnsafeFileError where others may change what is in it.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    if danger := who_may_change(path):
        raise UnsafeFileError(
            f"{path}: code is loaded from there, and {danger}; set XDG_CACHE_HOME to "
            "a folder that only this user can change"
        )
    path.chmod(0o700)
    return path


def who_may_change(path: Path) -> str:
    """Return who else may put files into a folder or replace it; "" for nobody.

    Of a folder that is missing, those above it are judged.
    """
    path = path.resolve()
    # Whoever owns the root can do anything; in a container that need not be user 0.
    trusted = {os.geteuid(), 0, Path("/").stat().st_uid}
    for folder in (path, *path.parents):
        try:
            found = folder.stat()
        except FileNotFoundError:
            continue
        if found.st_uid not in trusted:
            return f"{folder} belongs to user {found.st_uid}"
        # A sticky folder lets others add, and not replace what is another's.
        if found.st_mode & stat.S_ISVTX and folder != path:
            continue
        if found.st_mode & stat.S_IWOTH:
            return f"every user may change {folder}"
        # Many systems give each user a group, of the same number.
        if found.st_mode & stat.S_IWGRP and found.st_gid not in (os.geteuid(), 0):
            return f"group {found.st_gid} may change {folder}"
    return ""
