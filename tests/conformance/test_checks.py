"""Which results of cpu can be a reference, on calls made by hand."""

from __future__ import annotations

import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.conformance.calls import CPU, Call
from tests.conformance.checks import _agrees_with_itself


def is_reference(function, x: torch.Tensor) -> bool:
    call = Call(function, SampleInput(x))
    return _agrees_with_itself(call, call.make(CPU))


def test_a_result_that_repeats_is_a_reference():
    assert is_reference(torch.exp, torch.ones(5, 5))
    assert is_reference(torch.exp, torch.ones(5, 1).expand(5, 5))


def test_a_random_result_is_none():
    turns = iter(range(100))

    assert not is_reference(lambda x: x + next(turns), torch.ones(5))


def test_a_result_of_memory_that_is_not_the_input_s_is_none():
    def reads_behind_the_end(x):
        return x.as_strided((25,), (1,)) if 0 not in x.stride() else -x.flatten()

    assert is_reference(reads_behind_the_end, torch.ones(5, 5))
    assert not is_reference(reads_behind_the_end, torch.ones(5, 1).expand(5, 5))
