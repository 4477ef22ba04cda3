"""Libraries that go in front of libc in a process that a test starts."""

import os
import subprocess
from pathlib import Path


def build(source: Path, folder: Path, *more: str) -> Path:
    """Compile one for LD_PRELOAD."""
    library = folder / f"lib{source.stem}.so"
    flags = ["-std=c++20", "-O2", "-fPIC", "-shared", "-Wall", "-Wextra", *more]
    subprocess.run(
        [os.environ.get("CXX", "c++"), *flags, "-o", library, source, "-ldl"],
        check=True,
    )
    return library
