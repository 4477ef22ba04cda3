"""Which operators does a run check?"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

_DAY = 24 * 3600
THIRDS = 3


def rotating_third(root: Path) -> int:
    """Return another third for each commit; each day, where commits are missing."""
    done = subprocess.run(
        ["git", "-C", root, "rev-list", "--count", "HEAD"],
        capture_output=True,
        text=True,
    )
    shallow = subprocess.run(
        ["git", "-C", root, "rev-parse", "--is-shallow-repository"],
        capture_output=True,
        text=True,
    )
    if done.returncode == 0 and shallow.stdout.strip() == "false":
        return int(done.stdout) % THIRDS
    return int(time.time() // _DAY) % THIRDS


def third(names: Iterable[str], which: int) -> list[str]:
    """Return every third name from `which` on, of the names in order."""
    return sorted(names)[which::THIRDS]
