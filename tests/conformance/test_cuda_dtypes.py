"""docs/dtypes.md says what the npu does, and every value is right."""

from __future__ import annotations

import pytest
import torch
from versioned import of_the_pages

from tests.conformance import cuda_dtypes


@of_the_pages
def test_the_page_says_what_is_computed():
    rows = cuda_dtypes.table()

    assert not [key for key, why in rows.items() if why.startswith("other values")]
    assert cuda_dtypes.PAGE.read_text() == cuda_dtypes.page(rows)


def test_a_wrong_value_would_be_seen(monkeypatch: pytest.MonkeyPatch):
    histc = next(op for op, _ in cuda_dtypes.missing_on_cpu() if op.name == "histc")
    assert cuda_dtypes.outcome(histc, torch.int32) == ""
    monkeypatch.setattr(cuda_dtypes, "_to_cpu", lambda t: t.cpu() + 1)

    assert cuda_dtypes.outcome(histc, torch.int32).startswith("other values")
