"""The steps of nn.SyncBatchNorm, against batch_norm of everything at once."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

EPS, MOMENTUM = 1e-3, 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4), (6, 3, 2, 4)])
def test_parts_together_are_the_whole(shape, dtype):
    torch.manual_seed(0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    near = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.float16 else {}
    x, grad = (torch.randn(shape).to(dtype) for _ in range(2))
    weight, bias, var = (torch.rand(3, dtype=wide) for _ in range(3))
    mean = torch.randn(3, dtype=wide)
    held = [t.clone() for t in (mean, var)]
    whole = x.to(wide).requires_grad_()
    w, b = weight.clone().requires_grad_(), bias.clone().requires_grad_()
    y = F.batch_norm(whole, *held, w, b, True, MOMENTUM, EPS)
    y.backward(grad.to(wide))

    parts, grads = ([p.npu() for p in t.split([4, 2])] for t in (x, grad))
    counts = torch.tensor([[float(p.numel() // 3)] for p in parts]).npu()
    stats = [torch.batch_norm_stats(p, EPS) for p in parts]
    running = [mean.npu(), var.npu()]
    total_mean, invstd = torch.batch_norm_gather_stats_with_counts(
        parts[0],
        *(torch.stack(s) for s in zip(*stats, strict=True)),
        *running,
        MOMENTUM,
        EPS,
        counts[:, 0].to(wide),
    )
    outs = [
        torch.batch_norm_elemt(p, weight.npu(), bias.npu(), total_mean, invstd, EPS)
        for p in parts
    ]
    sums = [
        torch.batch_norm_backward_reduce(
            g, p, total_mean, invstd, weight.npu(), True, True, True
        )
        for g, p in zip(grads, parts, strict=True)
    ]
    dy, dy_xmu, of_weight, of_bias = (sum(s) for s in zip(*sums, strict=True))
    inputs = [
        torch.batch_norm_backward_elemt(
            g, p, total_mean, invstd, weight.npu(), dy, dy_xmu, counts.int().view(-1)
        )
        for g, p in zip(grads, parts, strict=True)
    ]

    def compare(got, expected):
        torch.testing.assert_close(got.cpu(), expected.to(got.dtype), **near)

    compare(torch.cat(outs), y.detach())
    compare(torch.cat(inputs), whole.grad)
    compare(of_weight, w.grad)
    compare(of_bias, b.grad)
    for got, expected in zip(running, held, strict=True):
        compare(got, expected)
    assert torch.cat(outs).dtype == dtype
