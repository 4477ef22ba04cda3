"""Parameters of every layout are updated as the plain loop updates them."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from step_loop import Both, plain_loop
from torch import Tensor, nn


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
    both = Both(Product(make()), kind, loss_fn=F.mse_loss, **options)

    both.train((x, x + 1) for x in torch.rand(8, 3, 4))

    both.compare()
    assert both.step.captures == (kind != "Adagrad")


def test_state_of_another_layout_is_used_as_the_plain_loop_uses_it():
    """A checkpoint may have it in the default layout."""
    both = Both(Product(transposed()), "AdamW", loss_fn=F.mse_loss)
    data = [(x, x + 1) for x in torch.rand(8, 3, 4)]
    for model, optimizer in (
        (both.theirs, both.their_optimizer),
        (both.ours, both.our_optimizer),
    ):
        plain_loop(model, optimizer, data[:1], loss_fn=F.mse_loss)
        state = copy.deepcopy(optimizer.state_dict())
        for name in ("exp_avg", "exp_avg_sq"):
            state["state"][0][name] = state["state"][0][name].contiguous()
        optimizer.load_state_dict(state)

    both.train(data[1:])

    both.compare(1)
