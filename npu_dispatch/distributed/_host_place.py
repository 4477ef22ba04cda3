"""Where a rank's Python is, noted each second for who looks from outside.

A rank that does not call a collective keeps the others waiting, and what its
Python does instead is seen by nobody else: it need not be in our code, nor wait
for us. So a thread notes the line of the main thread. If it cannot, since
somebody keeps Python's lock, the note grows old, which tells that.
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

from npu_dispatch import _C
from npu_dispatch.npu.runtime.device_error import frame_origins
from npu_dispatch.npu.runtime.start import start_until_exit

_SECONDS = 1.0
_LOADER = "/torch/utils/data/"
_started = threading.Lock()  # held for good by the first call
_ends = threading.Event()


def start_noting() -> None:
    """Start the thread. A second call does nothing."""
    if _started.acquire(blocking=False):
        notes = threading.Thread(target=_note, name="npu-host-place", daemon=True)
        start_until_exit(notes, _ends.set)


def _note() -> None:
    libraries = tuple(folder for folder, _ in frame_origins())
    main = threading.main_thread().ident
    while True:
        frame = sys._current_frames().get(main or 0)
        if frame is not None:
            _C.note_host_place(*_place(frame, libraries))
        del frame  # it keeps its locals alive
        if _ends.wait(_SECONDS):
            return


def _place(frame: FrameType, libraries: tuple[str, ...]) -> tuple[str, bool]:
    """Return the innermost line of the user's, and whether a loader runs it."""
    best: FrameType | None = None
    in_loader = False
    at: FrameType | None = frame
    while at is not None:
        file = at.f_code.co_filename
        in_loader = in_loader or _LOADER in file
        if best is None and not file.startswith(("<frozen", *libraries)):
            best = at
        at = at.f_back
    best = best or frame
    code = best.f_code
    return f"{code.co_filename}:{best.f_lineno} in {code.co_qualname}", in_loader
