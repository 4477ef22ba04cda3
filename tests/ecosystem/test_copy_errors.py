"""copy_ between shapes that do not fit says what cpu says."""

from __future__ import annotations

import pytest
import torch

SHAPES = [((2, 3), (3, 2)), ((1,), (3,)), ((0, 3), (3, 0)), ((3,), (2, 3)), ((), (2,))]


@pytest.mark.parametrize(("to", "source"), SHAPES)
@pytest.mark.parametrize("devices", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
def test_error_has_the_words_of_cpu(to, source, devices):
    with pytest.raises(RuntimeError) as expected:
        torch.ones(to).copy_(torch.ones(source))
    with pytest.raises(RuntimeError) as raised:
        torch.ones(to, device=devices[0]).copy_(torch.ones(source, device=devices[1]))
    assert str(raised.value) == str(expected.value)
