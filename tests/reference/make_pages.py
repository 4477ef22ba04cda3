"""Writes the pages of reference: python tests/reference/make_pages.py.

docs/environment.md is made of npu_dispatch/variables.py, docs/cli.md of the commands,
docs/rest.md of the service's OpenAPI description and of the fields listed beside this
file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import command_page
import environment_page
import rest_page

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "cli.md": command_page.lines,
    "environment.md": environment_page.lines,
    "rest.md": rest_page.lines,
}


def text(name: str) -> str:
    """Return a page as it should be."""
    return "\n".join(PAGES[name]()) + "\n"


if __name__ == "__main__":
    for page in PAGES:
        (DOCS / page).write_text(text(page))
