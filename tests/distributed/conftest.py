from __future__ import annotations

import pytest
from ranks import make_ranks


@pytest.fixture
def ranks(python, tmp_path):
    return make_ranks(python, tmp_path)
