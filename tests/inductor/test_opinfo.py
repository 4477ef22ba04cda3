"""Operators of PyTorch's OpInfo database: compiled on npu against eager on cpu.

The gate has one of them and a night has many, which follow from its seed.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from compiled import clones, outcome
from op_samples import OPS, first_samples

IN_THE_GATE, IN_A_NIGHT = 1, 60
# In inference torch's decomposition returns statistics, which nobody reads, on each
# device but cpu; the kernel of npu, as that of cpu, returns none.
OTHERWISE = {"native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update"}
CLOSE = {"rtol": 1e-4, "atol": 1e-4, "equal_nan": True}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    draw = random.Random(str(metafunc.config.option.hypothesis_seed))
    chosen = [op for op in draw.sample(OPS, IN_A_NIGHT) if op.name not in OTHERWISE]
    metafunc.parametrize(
        "op",
        [
            pytest.param(op, marks=() if i < IN_THE_GATE else pytest.mark.nightly)
            for i, op in enumerate(chosen)
        ],
        ids=[op.formatted_name for op in chosen],
    )


def observed(function: Any, arguments: Any, device: str) -> Any:
    torch.manual_seed(0)
    flat, keywords = clones(arguments, device)

    def call(*flat: Any) -> Any:
        return function(*flat, **keywords)

    found = outcome(call, flat)
    return found["results"], found["gradients"]


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_it_computes_what_eager_code_does(op: Any, dynamic: bool):
    def call(*arguments: Any, **keywords: Any) -> Any:
        return op(*arguments, **keywords)

    for arguments in first_samples(op):
        try:
            want = observed(call, arguments, "cpu")
            torch.testing.assert_close(
                observed(call, arguments, "cpu"), want, equal_nan=True
            )
        except Exception:
            continue  # not even cpu's own result repeats
        try:
            got = observed(torch.compile(call, dynamic=dynamic), arguments, "npu")
        except Exception:
            # What Dynamo and Inductor do not compile for cpu either, or what cannot be
            # asked of the npu: indices that must lie on cpu, say.
            with pytest.raises(Exception):  # noqa: B017
                observed(torch.compile(call, dynamic=dynamic), arguments, "cpu")
                observed(call, arguments, "npu")
            continue
        try:
            torch.testing.assert_close(got, want, **CLOSE)
        except AssertionError:
            # What Inductor itself computes otherwise, it does on cpu too.
            want = observed(torch.compile(call, dynamic=dynamic), arguments, "cpu")
            torch.testing.assert_close(got, want, **CLOSE)
