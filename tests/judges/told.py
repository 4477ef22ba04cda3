"""What a suite's process wrote down, and which part of a suite a test belongs to."""

import json
import zlib
from pathlib import Path
from typing import Any


def read(log: Path) -> dict[str, dict[str, Any]]:
    """Return the last line of each test; one without an outcome has not ended."""
    if not log.exists():
        return {}
    lines = (json.loads(line) for line in log.read_text().splitlines())
    return {line["test"]: line for line in lines if "test" in line}


def is_part(name: str, part: str) -> bool:
    """Return whether a test belongs to part K of N, which is the same in every run."""
    k, n = map(int, part.split("/"))
    return zlib.crc32(name.encode()) % n == k % n
