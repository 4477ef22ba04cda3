"""What tests of the API use."""

from __future__ import annotations

from pathlib import Path

import pytest
from sensors import Sensors


@pytest.fixture
def sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sensors:
    return Sensors(tmp_path, monkeypatch)
