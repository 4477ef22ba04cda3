"""All 380 rows of the requirement documents: each exists, is contracted, works."""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import make_rows
from contract import NAMES
from live import CALLS

ROWS = [line.split() for line in make_rows.ROWS.read_text().splitlines()]
CONTRACTED = {name.path: name for name in NAMES}


@functools.cache
def outcome(call: Callable[[], None]) -> Exception | None:
    """Run a call once, however many rows it serves."""
    try:
        call()
    except Exception as error:
        return error
    return None


def test_every_row_of_every_document_is_there():
    rows = Counter(document for document, *_ in ROWS)

    assert rows == {"000": 71, "001": 78, "002": 101, "003": 52, "004": 78}
    assert sum(rows.values()) == 380


@pytest.mark.parametrize(
    "call", dict.fromkeys(CALLS.values()), ids=lambda c: c.__name__
)
def test_a_call_works(call):
    if error := outcome(call):
        raise error


@pytest.mark.parametrize("document", ["000", "001", "002", "003", "004"])
def test_every_row_names_something_contracted_that_works(document):
    paths = [path for number, _, path in ROWS if number == document]

    # test_names.py compares the signatures.
    assert [path for path in paths if not CONTRACTED[path].exists()] == []
    assert [path for path in paths if outcome(CALLS[path])] == []


def test_no_call_is_for_a_name_without_a_row():
    assert CALLS.keys() == {path for *_, path in ROWS}
