"""docs/api.md and docs/api/ say what the docstrings and the tests say."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import make_docs
from versioned import of_the_pages

PAGES = make_docs.pages()


@of_the_pages
@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_page_is_up_to_date(path: Path):
    assert path.read_text() == PAGES[path], make_docs.__doc__


def test_there_is_no_other_page():
    assert set((make_docs.DOCS / "api").iterdir()) <= PAGES.keys()


def test_every_row_works():
    assert "missing" not in make_docs.rows_page()
