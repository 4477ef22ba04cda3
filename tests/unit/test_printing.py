"""repr() of tensors: cpu's text, after one wait."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

TENSORS = {
    "numbers": torch.arange(48.0).view(6, 8),
    "summarized": torch.arange(2000),
    "scalar": torch.tensor(3.5),
    "complex": torch.tensor([1 + 2j, -3.25j]).conj(),
    "mask": torch.tensor([True, False]),
    "half": torch.tensor([[0.5, 1.25]], dtype=torch.float16),
    "leaf": torch.ones(2, requires_grad=True),
    "strided": torch.arange(24.0).view(4, 6)[::2, ::3],
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_waits_once_to_be_printed(name):
    t = TENSORS[name]
    on_device = t.detach().npu().requires_grad_(t.requires_grad)
    with warnings.catch_warnings(record=True) as waits:
        warnings.simplefilter("ignore")
        torch.npu.set_sync_debug_mode("warn")
        try:
            warnings.simplefilter("always")
            text = repr(on_device)
        finally:
            torch.npu.set_sync_debug_mode("default")

    assert len(waits) == 1
    plain = text.replace("device='npu:0'", "").replace(",", "").split()
    assert plain in (
        repr(t).replace(",", "").split(),
        repr(t).replace(",", "").replace(")", " )").split(),
    )


def test_a_parameter_is_printed_as_on_cpu():
    parameter = nn.Parameter(torch.arange(3.0))
    text = repr(nn.Parameter(parameter.detach().npu()))
    assert text == repr(parameter).replace("requires", "device='npu:0', requires")
