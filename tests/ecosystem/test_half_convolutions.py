"""Convolutions and products of 16 bits, in graphs and at the edges.

Their values in all layouts: test_result_layouts.py.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from tests.ecosystem.both import outcome


@pytest.mark.parametrize(
    ("call", "shapes"),
    [(F.conv2d, ((1, 4, 8, 8), (4, 4, 3, 3))), (torch.mm, ((32, 32), (32, 32)))],
    ids=["convolution", "product"],
)
def test_a_replay_computes_the_same(call, shapes):
    x, weight = (torch.randn(shape).half().npu() for shape in shapes)
    want = call(x, weight).cpu()
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = call(x, weight)
    for _ in range(2):
        y.zero_()
        graph.replay()
        assert torch.equal(y.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_convolution_without_results_is_accepted_where_cpu_accepts_it(dtype):
    """float32's kernel refuses it, and so does float16's on some processors."""

    def evaluate(device):
        x, weight = (
            torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
            for shape in ((1, 1, 4, 5, 1), (1, 1, 4, 3, 1))
        )
        y = F.conv_transpose3d(
            x, weight, stride=3, padding=(0, 0, 1), output_padding=(0, 0, 1)
        )
        y.sum().backward()
        return y, x.grad, weight.grad

    wanted, found = outcome(evaluate, "cpu"), outcome(evaluate, "npu")
    if isinstance(wanted, tuple):
        assert "Output size is too small" in wanted[1]
        assert "Output size is too small" in found[1]
        return
    assert wanted[0][2].shape == found[0][2].shape == (1, 1, 13, 15, 0)
    torch.testing.assert_close([f[2] for f in found[1:]], [w[2] for w in wanted[1:]])
