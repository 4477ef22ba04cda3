"""Blocks of models: compiled on npu against eager on cpu, forward and backward.

The gate has one of them, which follows from the seed; the rest wait for the night.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable

import pytest
import torch
from compiled import outcome
from model_blocks import BLOCKS, Made

IN_THE_GATE = 1


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    draw = random.Random(str(metafunc.config.option.hypothesis_seed))
    chosen = draw.sample(range(len(BLOCKS)), IN_THE_GATE)
    metafunc.parametrize(
        "block",
        [
            pytest.param(block, marks=() if i in chosen else pytest.mark.nightly)
            for i, block in enumerate(BLOCKS)
        ],
        ids=[block.__name__ for block in BLOCKS],
    )


def test_a_block_trains_as_on_cpu(block: Callable[[], Made]):
    torch.manual_seed(0)
    cpu, x = block()
    npu = copy.deepcopy(cpu).npu()

    want = outcome(cpu, (x.clone().requires_grad_(),), [cpu])
    got = outcome(torch.compile(npu), (x.npu().requires_grad_(),), [npu])

    assert len(got["gradients"]) > 1
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
