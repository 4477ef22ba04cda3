"""What Inductor's header computes one by one comes from vectors, with its results."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def several(x, n, mask):
    """Return random numbers, and masks that are read and written, of several types."""
    kept = torch.rand_like(x) > 0.25
    positive = F.relu(x)
    return (
        torch.where(kept, positive, -x),
        positive <= 0,
        kept & mask,
        torch.where(mask, n, n + 1),
        torch.where(mask, x.double(), 0.5),
        torch.where(mask, x.bfloat16(), 0.5),
        (n > 0) ^ mask,
    )


# Tails of vectors, loops of one thread and of several; vectors of two widths and none.
@pytest.mark.parametrize("width", [None, 256, 1])
@pytest.mark.parametrize("shape", [(3, 37), (300, 131)])
def test_draws_and_masks_are_those_of_cpu(shape, width):
    torch.manual_seed(0)
    x, n = torch.randn(shape), torch.randint(-9, 9, shape, dtype=torch.int32)
    mask = torch.rand(shape) > 0.5
    results = {}
    for device in ("cpu", "npu"):
        torch.manual_seed(3)
        function = torch.compile(several, options={"cpp.simdlen": width})
        found = function(x.to(device), n.to(device), mask.to(device))
        # As bytes: a bool is 0 or 1.
        results[device] = [
            (y.view(torch.uint8) if y.dtype == torch.bool else y).cpu() for y in found
        ]

    torch.testing.assert_close(results["npu"], results["cpu"], rtol=0, atol=0)
