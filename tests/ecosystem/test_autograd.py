"""Checkpointing, torch.func, forward mode, double backward, hooks."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from tests.ecosystem.both import both

X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_the_same_dropout(reentrant):
    x = torch.ones(1000).npu().requires_grad_()

    def block(t):
        return torch.nn.functional.dropout(t, 0.5)

    y = checkpoint(block, x, use_reentrant=reentrant)
    y.sum().backward()

    assert torch.equal(x.grad, y.detach())


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.func.grad(lambda t: t.sin().sum())(x),
        lambda x: torch.func.vmap(lambda t: t.cumsum(0) * t)(x),
        lambda x: torch.func.vmap(torch.func.grad(lambda t: t.exp().prod()))(x),
        lambda x: torch.func.jacrev(lambda t: t @ t.t())(x),
        lambda x: torch.func.jacfwd(lambda t: t.softmax(-1))(x),
        lambda x: torch.func.hessian(lambda t: (t**3).sum())(x),
        lambda x: torch.func.jvp(torch.tanh, (x,), (x,)),
        lambda x: torch.func.vjp(torch.tanh, x)[1](x),
        lambda x: torch.func.vmap(torch.linalg.norm, in_dims=1)(x),
        lambda x: torch.func.functional_call(
            nn.Linear(4, 2, device=x.device),
            {"weight": x[:2], "bias": x[0, :2]},
            (x,),
        ),
    ],
)
def test_func(function):
    both(function, X)


def test_vmap_draws_as_told():
    x = torch.zeros(4, 8).npu()

    same = torch.func.vmap(lambda t: t + torch.rand_like(t), randomness="same")(x)
    different = torch.func.vmap(
        lambda t: t + torch.rand_like(t), randomness="different"
    )(x)

    assert torch.equal(same[0], same[1])
    assert not torch.equal(different[0], different[1])


def test_forward_mode():
    def run(x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, torch.ones_like(x))
            return list(forward_ad.unpack_dual((dual.sin() @ dual.t()).logsumexp(0)))

    both(run, X)


def test_double_backward():
    def run(x):
        (first,) = torch.autograd.grad((x.tanh() ** 2).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        return first, second

    both(run, X.clone().requires_grad_())
    layer = nn.Conv1d(1, 2, 3).double()
    x = torch.rand(1, 1, 6, dtype=torch.float64).npu().requires_grad_()
    assert torch.autograd.gradgradcheck(layer.npu(), (x,))


def test_hooks():
    seen = []
    layer = nn.Linear(4, 2).npu()
    layer.register_forward_hook(lambda m, i, o: seen.append("forward"))
    layer.register_full_backward_hook(lambda m, gi, go: seen.append("backward"))
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append("grad"))
    x = X.npu().requires_grad_()
    x.register_hook(lambda g: g * 0)

    layer(x).sum().backward()

    assert set(seen) == {"forward", "backward", "grad"}
    assert x.grad.abs().sum().item() == 0


def test_saved_tensors_hooks_and_save_on_cpu():
    x = X.npu().requires_grad_()
    with torch.autograd.graph.save_on_cpu():
        y = x.exp()

    y.sum().backward()

    torch.testing.assert_close(x.grad.cpu(), X.exp())


def test_anomaly_mode_names_the_function():
    x = torch.zeros(2).npu().requires_grad_()

    with (
        pytest.raises(RuntimeError, match=r"SqrtBackward0.*nan"),
        pytest.warns(UserWarning),
        torch.autograd.detect_anomaly(),
    ):
        (x.sqrt() * 0).sum().backward()
