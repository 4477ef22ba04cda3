"""A command with all that it starts."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any


@contextlib.contextmanager
def started(
    command: Sequence[str | Path], output: IO[bytes], **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start it without input; what it leaves running ends with the block.

    `options` are those of subprocess.Popen.
    """
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        **options,
    )
    try:
        yield child
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
