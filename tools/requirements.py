"""Prints what a developer's environment needs, one requirement a line.

    python tools/requirements.py torch   torch alone, which may have an index of its own
    python tools/requirements.py known   the versions of torch that it may be
    python tools/requirements.py others  all of them but that one
    python tools/requirements.py dev     what building, running and the extra `dev` need

pip installs an extra only together with its package, which is built later, by
these very tools.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import torch_pin

_PROJECT = Path(__file__).parents[1] / "pyproject.toml"


def dev() -> list[str]:
    """Return all but torch, each once, with the extras that `dev` names."""
    tables = tomllib.loads(_PROJECT.read_text())
    project = tables["project"]
    extras = project["optional-dependencies"]
    pending = [
        *tables["build-system"]["requires"],
        *project["dependencies"],
        *extras["dev"],
    ]
    found: dict[str, None] = {}
    for requirement in pending:
        if own := re.fullmatch(r"npu_dispatch\[(.+)\]", requirement):
            pending += [more for name in own[1].split(",") for more in extras[name]]
        else:
            found[requirement] = None
    return list(found)


if __name__ == "__main__":
    lists = {
        "torch": lambda: [f"torch=={torch_pin.known()[0]}"],
        "known": lambda: list(torch_pin.known()),
        "others": lambda: list(torch_pin.known()[1:]),
        "dev": dev,
    }
    if len(sys.argv) != 2 or sys.argv[1] not in lists:
        sys.exit(f"usage: requirements.py {'|'.join(lists)}; found: {sys.argv[1:]}")
    print(*lists[sys.argv[1]](), sep="\n")
