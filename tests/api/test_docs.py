"""docs/api.md says what the docstrings say."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import make_docs


def test_the_table_of_names_is_up_to_date():
    assert make_docs.DOCS.read_text() == make_docs.page(), make_docs.__doc__
