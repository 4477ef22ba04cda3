"""What other users may change: files in shared memory, and folders that have code.

Anybody who may write to a folder of segments, traces and events can put anything
there, and the writer of a file may end, or write nonsense, at any moment. So a file is
opened in one way, which follows no links and waits for nobody, and is read by copying:
a mapped file that somebody makes shorter kills the process that touches it. And the
shared temporary folder lets anybody make a folder of a known name first.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from pathlib import Path
from typing import Self

from npu_dispatch.observe.segment.system import is_here, lives

_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opening a FIFO for reading would wait for who writes to it.
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class UnsafeFileError(OSError):
    """The file is not one that a process of this user has made."""


def open_untrusted(
    path: Path, *, writable: bool = False, any_user: bool = False
) -> int:
    """Return a descriptor of a plain file of this user, in a folder that is safe.

    With `any_user` the folder may be another user's. The file must then be of that
    user or of root, as whoever else can write there could show anything.
    Raises UnsafeFileError for anything else, and OSError as os.open does.
    """
    folder = os.open(path.parent, _FOLDER)
    try:
        around = os.fstat(folder)
        owners = {around.st_uid, 0} if any_user else {os.geteuid()}
        _check_folder(path.parent, around, any_user)
        flags = _FILE | (os.O_RDWR if writable else os.O_RDONLY)
        file = os.open(path.name, flags, dir_fd=folder)
    finally:
        os.close(folder)
    try:
        _check_file(path, os.fstat(file), owners)
    except BaseException:
        os.close(file)
        raise
    return file


def _check_folder(path: Path, found: os.stat_result, any_user: bool) -> None:
    if not any_user and found.st_uid not in (os.geteuid(), 0):
        raise UnsafeFileError(f"{path}: belongs to user {found.st_uid}")
    if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
        raise UnsafeFileError(f"{path}: every user may change its files")


def _check_file(path: Path, found: os.stat_result, owners: set[int]) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnsafeFileError(f"{path}: not a plain file")
    if found.st_uid not in owners:
        raise UnsafeFileError(f"{path}: belongs to user {found.st_uid}")
    if found.st_mode & stat.S_IWOTH:
        raise UnsafeFileError(f"{path}: every user may write to it")


class Closed:
    """What is closed at the end of a `with` block."""

    def close(self) -> None:
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class UntrustedFile(Closed):
    """An open file of that kind, to be read piece by piece.

    `raises`: the exception where that cannot be done.
    """

    def __init__(
        self,
        path: Path,
        *,
        writable: bool = False,
        any_user: bool = False,
        raises: type[Exception] = UnsafeFileError,
    ) -> None:
        self.path, self._raises = path, raises
        self._file = open_untrusted(path, writable=writable, any_user=any_user)
        found = os.fstat(self._file)
        self.size, self.inode, self.owner = found.st_size, found.st_ino, found.st_uid

    def read(self, at: int, size: int) -> bytes:
        """Return so many bytes; raise where there are fewer."""
        try:
            # No more than the file had are read, whatever sizes it claims.
            data = os.pread(self._file, size, at) if at + size <= self.size else b""
        except OSError as error:
            raise self._raises(str(error)) from None
        if len(data) != size:
            raise self._raises(
                f"{self.path}: expected {size} bytes at {at}, found {len(data)}"
            )
        return data

    def owner_lives(self, pid: int, start: int, namespace: int) -> bool | None:
        """Return whether the process that has made it lives; None if it is not known.

        In this namespace its number and start tell; elsewhere the lock of the file
        does, which the kernel lifts when the process ends. csrc/stats/owner.h has the
        same rule.
        """
        if is_here(namespace):
            return lives(pid, start, namespace)
        asked = struct.pack(_FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
        try:  # without taking it, which could stop the owner from doing so
            answer = fcntl.fcntl(self._file, fcntl.F_OFD_GETLK, asked)
        except OSError:
            return None
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)

    def lock(self, how: int) -> bool:
        """Take or give back a lock of flock(2); False where another one has it."""
        try:
            fcntl.flock(self._file, how)
        except BlockingIOError:
            return False
        return True

    def grow(self) -> None:
        """Take in what its process has added to its end since it was opened."""
        self.size = os.fstat(self._file).st_size

    def write(self, at: int, data: bytes) -> None:
        """Write over bytes that are there."""
        self.read(at, len(data))  # which refuses to make a file longer
        try:
            os.pwrite(self._file, data, at)
        except OSError as error:
            raise self._raises(str(error)) from None

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        if getattr(self, "_file", -1) >= 0:
            self.close()


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
