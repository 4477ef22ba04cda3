"""Parameters of every layout are updated as the plain loop updates them."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from step_loop import plain_loop
from torch import Tensor, nn

import npu_dispatch


class Product(nn.Module):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight


def with_gaps() -> Tensor:
    return (torch.arange(32.0).reshape(4, 8) / 32).npu()[:, ::2]


def transposed() -> Tensor:
    return (torch.arange(16.0).reshape(4, 4) / 16).npu().t()


@pytest.mark.filterwarnings("ignore:compile_step runs eagerly")  # Adagrad
@pytest.mark.parametrize("make", [with_gaps, transposed])
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("SGD", {"momentum": 0.9}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("Adagrad", {}),
        ("RMSprop", {}),
    ],
)
def test_a_parameter_is_updated_where_it_is(make, kind, options):
    data = [(x, x + 1) for x in torch.rand(8, 3, 4)]
    ends = []
    for compiled in (False, True):
        model = Product(make())
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.1, **options)
        if compiled:
            step = npu_dispatch.compile_step(
                model, optimizer, F.mse_loss, backend="eager"
            )
            for batch in data:
                step(*batch)
        else:
            plain_loop(model, optimizer, data, loss_fn=F.mse_loss)
        ends.append(model.weight.detach().cpu())

    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)
    assert step.captures == (kind != "Adagrad")


def test_state_of_another_layout_is_used_as_the_plain_loop_uses_it():
    """A checkpoint may have it in the default layout."""
    data = [(x, x + 1) for x in torch.rand(8, 3, 4)]
    ends = []
    for compiled in (False, True):
        model = Product(transposed())
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        plain_loop(model, optimizer, data[:1], loss_fn=F.mse_loss)
        state = copy.deepcopy(optimizer.state_dict())
        for name in ("exp_avg", "exp_avg_sq"):
            state["state"][0][name] = state["state"][0][name].contiguous()
        optimizer.load_state_dict(state)
        if compiled:
            step = npu_dispatch.compile_step(
                model, optimizer, F.mse_loss, backend="eager"
            )
            for batch in data[1:]:
                step(*batch)
        else:
            plain_loop(model, optimizer, data[1:], loss_fn=F.mse_loss)
        ends.append(model.weight.detach().cpu())

    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-5)
    assert (step.reason, step.captures) == (None, 1)
