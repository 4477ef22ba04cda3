"""Makes the pages of reference when mkdocs builds the site: `hooks` of mkdocs.yml.

They list the package's names, commands, routes and operators, so they need an installed
npu_dispatch. The changelog is the repository's.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for `tests`
import api_pages
import command_page
import cuda_names_page
import dtypes_page
import environment_page
import operators_page
import rest_page
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

CHANGELOG = Path(__file__).resolve().parents[2] / "CHANGELOG.md"

PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "changelog.md": lambda: iter(CHANGELOG.read_text().splitlines()),
    "cli.md": command_page.lines,
    "dtypes.md": dtypes_page.lines,
    "ops.md": operators_page.lines,
    "rest.md": rest_page.lines,
}
ADDED: dict[str, Callable[[], Iterator[str]]] = {
    "environment.md": environment_page.lines,
    "torch_npu.md": cuda_names_page.lines,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages to those of docs/."""
    made = api_pages.pages() | {name: lines() for name, lines in PAGES.items()}
    for name, lines in made.items():
        text = "\n".join(lines) + "\n"
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(
    markdown: str, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Add to pages of docs/ the tables that the package tells of itself."""
    if lines := ADDED.get(page.file.src_uri):
        return "\n".join([markdown, *lines(), ""])
    return markdown
