"""Readers of other processes' files hold against inputs that coverage has led to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from missing import need_module

from tests.torture.guided import KINDS, campaign

SECONDS = 60
SEED = int(os.environ.get("NPU_TEST_SEED", "0"))
CORPUS = Path(__file__).resolve().parents[2] / "out" / "guided"  # of all nights


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_ends_a_reader(kind: str):
    need_module("atheris")
    told = campaign(kind, SECONDS, SEED % (1 << 31), CORPUS / kind)

    assert told["findings"] == []
    assert told["executions"] > 100
