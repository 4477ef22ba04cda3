"""Gradients of slices, which are written where they belong."""

from __future__ import annotations

import pytest
import torch

SHAPES = [(7,), (3, 50, 21), (300, 2, 1, 500), (0, 4)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_gradients_are_those_of_cpu(shape, dtype):
    seed = torch.Generator().manual_seed(0)
    sizes = list(shape)
    for dim in range(-len(sizes), len(sizes)):
        size = sizes[dim]
        rest = [n for i, n in enumerate(sizes) if i != dim % len(sizes)]
        calls = [
            (torch.ops.aten.select_backward, rest, (dim, index))
            for index in (0, size // 2, -1)
            if size
        ]
        for start, end, step in ((1, size - 1, 2), (-3, 1 << 62, 1), (0, size, 1)):
            part = len(range(size)[slice(start, end, step)])
            cut = sizes.copy()
            cut[dim] = part
            rows = (torch.ops.aten.slice_backward, cut, (dim, start, end, step))
            calls.append(rows)
        for op, gradient, arguments in calls:
            grad = torch.randn(gradient, generator=seed).to(dtype)
            wanted = op(grad, sizes, *arguments)
            filled = torch.full_like(wanted, 9, device="npu")  # its memory is reused
            del filled
            found = op(grad.npu(), sizes, *arguments)
            assert torch.equal(found.cpu(), wanted)
