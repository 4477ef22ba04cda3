"""Dtypes that CUDA's kernels take and cpu's do not: computed, and rightly."""

import pytest
import torch
from versioned import of_the_pages

from tests.conformance import cuda_dtypes

# What torch has no kernel for on cpu, in whatever dtype; and transforms of float16.
NOT_COMPUTED = {
    "nanmean",
    "nansum",
    "nn.functional.rrelu",
    "torch.ops.aten._efficient_attention_forward",
    "torch.ops.aten._flash_attention_forward",
}


@pytest.mark.nightly
@of_the_pages
def test_all_others_are_computed_and_have_the_values_of_the_wider_dtype():
    failed = {key: why for key, why in cuda_dtypes.table().items() if why}

    assert {key: w for key, w in failed.items() if w.startswith("other values")} == {}
    of_fft = {key for key in failed if key[0].startswith("fft.")}
    assert {dtype for _, dtype in of_fft} == {"float16"}
    assert {name for name, _ in failed.keys() - of_fft} == NOT_COMPUTED


def test_a_wrong_value_would_be_seen(monkeypatch: pytest.MonkeyPatch):
    histc = next(op for op, _ in cuda_dtypes.missing_on_cpu() if op.name == "histc")
    assert cuda_dtypes.outcome(histc, torch.int32) == ""
    monkeypatch.setattr(cuda_dtypes, "_to_cpu", lambda t: t.cpu() + 1)

    assert cuda_dtypes.outcome(histc, torch.int32).startswith("other values")
