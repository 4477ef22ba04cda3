"""Which results of cpu can be a reference, on calls made by hand."""

from __future__ import annotations

import torch
from torch.testing._internal.opinfo.core import SampleInput

from tests.conformance.calls import CPU, Call
from tests.conformance.excuses import agrees_with_itself, is_a_tie, is_nearer


def is_reference(function, x: torch.Tensor) -> bool:
    call = Call(function, SampleInput(x))
    return agrees_with_itself(call, call.make(CPU))


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


def first(x):
    return x.gather(1, (x == x.amax(1, keepdim=True)).byte().argmax(1, keepdim=True))


def last(x):
    return first(x.flip(1))


def either_will_do(of_cpu, of_device) -> bool:
    """Return whether either gradient will do, for rows of equal numbers."""
    x = torch.tensor([[3.0], [5.0]]).expand(2, 6).requires_grad_()
    call = Call(of_cpu, SampleInput(x), backward="")
    return is_a_tie(
        call, Call(of_device, SampleInput(x), backward="").make(CPU), call.make(CPU)
    )


def test_any_of_equal_numbers_may_have_the_gradient_of_a_selection():
    assert either_will_do(first, last)
    assert either_will_do(last, first)


def test_the_gradients_of_equal_numbers_have_a_sum():
    assert not either_will_do(
        first, lambda x: last(x) + (x - x.detach()).sum(1, keepdim=True)
    )


def test_the_result_of_a_selection_is_not_free():
    assert not either_will_do(first, lambda x: last(x) + 1)


def test_equal_numbers_have_gradients_of_their_own_elsewhere():
    weights = torch.arange(6.0)

    assert not either_will_do(lambda x: x * weights, lambda x: x * weights.flip(0) * 1)
    # Of the same values, and the same sum of gradients.
    assert not either_will_do(
        lambda x: (x * weights).sum(1), lambda x: (x * weights.flip(0)).sum(1)
    )


def of_half(x):
    """A sum that is rounded at each step."""
    total = torch.zeros_like(x[0])
    for row in x:
        total = total + row
    return total


def of_single(x):
    return x.float().sum(0).to(x.dtype)


def is_better(of_device, of_cpu, dtype: torch.dtype) -> bool:
    x = torch.linspace(0.1, 7, 600).reshape(200, 3).to(dtype).requires_grad_()
    call = Call(of_cpu, SampleInput(x), backward="")
    device = Call(of_device, SampleInput(x), backward="")
    return is_nearer(call, device.make(CPU), call.make(CPU))


def test_a_result_of_half_precision_may_be_better_than_cpu_s():
    for dtype in (torch.float16, torch.bfloat16):
        assert is_better(of_single, of_half, dtype)
        assert not is_better(of_half, of_single, dtype)
        assert not is_better(lambda x: of_single(x) * 1.5, of_half, dtype)
    assert not is_better(of_single, of_half, torch.float32)
