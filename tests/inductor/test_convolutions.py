"""Convolutions: Inductor lays their results out as the device's kernels do."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from compiled import outcome
from torch import nn

KINDS: list[Any] = [
    lambda: (nn.Conv2d(64, 128, 3, padding=1), (2, 64, 8, 8)),
    lambda: (nn.Conv2d(3, 8, 3, groups=1), (2, 3, 9, 9)),
    lambda: (nn.ConvTranspose2d(72, 80, 2, stride=2), (1, 72, 5, 5)),
    lambda: (nn.Conv1d(70, 66, 3), (2, 70, 12)),
    lambda: (nn.Conv3d(4, 6, 2), (1, 4, 5, 5, 5)),
]


@pytest.mark.parametrize("kind", KINDS[:1] + [
    pytest.param(kind, marks=pytest.mark.nightly) for kind in KINDS[1:]
])  # fmt: skip
@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_a_result_lies_where_inductor_takes_it_to_lie(
    kind: Any, channels_last: bool, training: bool
):
    torch.manual_seed(0)
    layer, shape = kind()
    cpu = nn.Sequential(layer, nn.ReLU())
    x = torch.randn(shape)
    if channels_last and x.dim() == 4:
        cpu, x = (one.to(memory_format=torch.channels_last) for one in (cpu, x))
    npu = copy.deepcopy(cpu).npu()

    with torch.set_grad_enabled(training):
        want = outcome(cpu, (x.clone().requires_grad_(training),), [cpu])
        got = outcome(torch.compile(npu), (x.npu().requires_grad_(training),), [npu])

    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
