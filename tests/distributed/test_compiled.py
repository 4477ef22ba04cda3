"""Compiled programs call collectives, and wait for them where they must."""

from __future__ import annotations

import pytest

FUNCTIONS = """
import torch.distributed._functional_collectives as calls
join("cpu:gloo,npu:hccl")
def f(x, group):
    y = x * 2
    reduced = calls.all_reduce(y, "sum", group)
    gathered = calls.all_gather_single(y, 0, group)
    scattered = calls.reduce_scatter_single(gathered, "avg", 0, group)
    swapped = calls.all_to_all_single(gathered, None, None, group)
    told = calls.broadcast(y, 1, group)
    both = calls.all_reduce_coalesced([x, x + 1], "max", group)
    return reduced + 1, gathered * 3, scattered - 1, swapped * 2, told + 1, *both
def given(r):
    return torch.arange(6.).reshape(2, 3) + r
# Of two ranks, as the definitions say.
y = [2 * given(r) for r in range(2)]
whole = torch.cat(y)
wanted = (y[0] + y[1] + 1, whole * 3, whole.chunk(2)[rank] - 1,
          torch.cat([whole.chunk(2)[rank]] * 2) * 2, y[1] + 1, given(1), given(1) + 1)
"""


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_functional_collectives_are_compiled(ranks, backend: str):
    ranks(
        FUNCTIONS
        + f"compiled = torch.compile(f, backend={backend!r}, fullgraph=True)"
        + """
for _ in range(2):
    got = compiled(given(rank).npu(), dist.group.WORLD)
    for a, b in zip(got, wanted, strict=True):
        assert a.device.type == "npu"
        torch.testing.assert_close(a.cpu(), b)
"""
    )


def test_a_compiled_ddp_step_gives_the_gradients_of_cpu(ranks):
    ranks(
        """
        import torch.nn as nn
        from torch.nn.parallel import DistributedDataParallel as DDP
        join("cpu:gloo,npu:hccl")
        def step(device):
            torch.manual_seed(0)
            model = DDP(nn.Sequential(
                nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(device))
            if device == "npu":
                model = torch.compile(model, backend="aot_eager")
            model(batch(0, 4, 8).to(device)).pow(2).mean().backward()
            return [p.grad.cpu() for p in model.parameters()]
        torch.testing.assert_close(step("npu"), step("cpu"))
        """
    )
