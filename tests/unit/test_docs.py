"""The examples of the documents run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

DOCUMENT = Path(__file__).parents[2] / "docs" / "debugging.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.M | re.S)


@pytest.mark.filterwarnings("ignore::npu_dispatch.errors.HostSyncWarning")
@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_an_example_runs(number):
    exec(compile(EXAMPLES[number], f"{DOCUMENT.name}#{number}", "exec"), {})
    assert torch.npu.stream_error() is None


def test_there_are_examples():
    assert len(EXAMPLES) >= 3
