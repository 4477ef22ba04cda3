"""The examples of the documents run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

DOCS = Path(__file__).parents[2] / "docs"
EXAMPLES = [
    pytest.param(example, id=f"{name}#{number}")
    for name in ("index.md", "debugging.md")
    for number, example in enumerate(
        re.findall(r"^```python\n(.*?)^```", (DOCS / name).read_text(), re.M | re.S)
    )
]


@pytest.mark.filterwarnings("ignore::npu_dispatch.errors.HostSyncWarning")
@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_runs(example, request):
    exec(compile(example, request.node.callspec.id, "exec"), {})
    assert torch.npu.stream_error() is None


def test_there_are_examples():
    assert len(EXAMPLES) >= 4
