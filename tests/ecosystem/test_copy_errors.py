"""copy_ between shapes that do not fit says what cpu says."""

from __future__ import annotations

import pytest
import torch

from tests.ecosystem.both import outcome

SHAPES = [((2, 3), (3, 2)), ((1,), (3,)), ((0, 3), (3, 0)), ((3,), (2, 3)), ((), (2,))]


@pytest.mark.parametrize("devices", [("npu", "npu"), ("npu", "cpu"), ("cpu", "npu")])
def test_error_has_the_words_of_cpu(devices):
    for shapes in SHAPES:
        to, source = map(torch.ones, shapes)
        expected = outcome(to.copy_, source)
        assert outcome(to.to(devices[0]).copy_, source.to(devices[1])) == expected
