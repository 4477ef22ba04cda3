"""What tests of the API use."""

from pathlib import Path

import pytest
from sensors import Sensors


@pytest.fixture
def sensors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sensors:
    return Sensors(tmp_path, monkeypatch)
