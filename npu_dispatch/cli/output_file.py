"""Names of files that a command will write when it has done its work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

__all__ = ["OUTPUT_FILE"]


class _OutputFile(click.ParamType):  # type: ignore[type-arg]
    """A file that can be written. It is asked first, so that no work is lost.

    Missing folders are made.
    """

    name = "file"

    def convert(self, value: Any, param: Any, ctx: Any) -> Path:
        path = Path(value)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            self.fail(
                f"cannot make the folder {str(path.parent)!r}: {error}", param, ctx
            )
        if path.is_dir():
            self.fail(f"{value!r} is a folder; name a file", param, ctx)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            self.fail(f"{value!r} cannot be written: no permission", param, ctx)
        return path


OUTPUT_FILE = _OutputFile()
