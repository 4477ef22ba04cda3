"""A command in a world where other things are mounted, which nobody else sees."""

import shutil
import subprocess

import pytest


def in_own_mounts(script: str) -> tuple[str, ...]:
    """Return what a command is put behind, to run when the script has mounted."""
    tool = shutil.which("unshare")
    if tool is None or subprocess.run([tool, "-rm", "true"], check=False).returncode:
        pytest.skip("no mounts of one's own here")
    return tool, "-rm", "sh", "-c", f'{script}; exec "$@"', "sh"
