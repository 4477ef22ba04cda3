"""The examples of docs/sanitizer.md find what they say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from npu_dispatch.npu import _sanitizer
from npu_dispatch.testing import ScheduleError

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "sanitizer.md"
EXAMPLES = re.findall(
    r"```python\n# finds: (\S+)\n(.*?)```", DOCUMENT.read_text(), re.S
)


@pytest.mark.parametrize(("finds", "code"), EXAMPLES)
def test_an_example_finds_what_it_says(finds: str, code: str):
    was = _sanitizer._state.mode
    names: dict[str, object] = {"torch": torch}
    _sanitizer.disable_npu_sanitizer()
    try:
        if finds == "ScheduleError":
            with pytest.raises(ScheduleError):
                exec(code, names)
            return
        _sanitizer.clear_reports()
        _sanitizer.enable_npu_sanitizer("report")
        exec(code, names)
        torch.npu.synchronize()
        kinds = [r.kind for r in _sanitizer.reports()]
        assert kinds == ([] if finds == "nothing" else [finds])
    finally:
        torch.npu.synchronize()
        _sanitizer.clear_reports()
        _sanitizer.disable_npu_sanitizer()
        if was:
            _sanitizer.enable_npu_sanitizer(was)


def test_the_document_has_examples_of_both_sorts():
    assert len(EXAMPLES) >= 7
