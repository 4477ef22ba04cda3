"""Optimizers of torch.optim: plain, foreach, fused and capturable."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch import optim

from tests.ecosystem.both import both

FORMS = ["foreach", "fused", "capturable"]
ALL = sorted(
    name
    for name, value in vars(optim).items()
    if inspect.isclass(value) and issubclass(value, optim.Optimizer)
    if name not in ("Optimizer", "LBFGS", "SparseAdam", "Muon")
)


def _cases():
    for name in ALL:
        yield name, {}
        for form in FORMS:
            if form in inspect.signature(getattr(optim, name)).parameters:
                yield name, {form: True}


@pytest.mark.parametrize(("name", "options"), _cases())
def test_three_steps(name, options):
    def run(*parameters):
        # capturable exists for accelerators; on cpu the plain form says the same.
        own = dict(options)
        if parameters[0].device.type == "cpu":
            own.pop("capturable", None)
        optimizer = getattr(optim, name)(parameters, lr=0.01, **own)
        for _ in range(3):
            optimizer.zero_grad()
            sum((p**2).sum() for p in parameters).backward()
            optimizer.step()
        return [p.detach() for p in parameters]

    parameters = [
        torch.rand(4, 3, requires_grad=True),
        torch.rand(5, requires_grad=True),
    ]
    both(run, *parameters, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("size", [12, 70_000], ids=["small", "large"])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("Adagrad", {}),
    ],
)
def test_fused_steps_are_queued(name, options, size):
    """After the first two, which may see what they can be tried on."""
    on_cpu = [torch.rand(size, requires_grad=True), torch.rand(3, requires_grad=True)]
    on_npu = [p.detach().npu().requires_grad_() for p in on_cpu]
    for parameters in (on_cpu, on_npu):
        for p in parameters:
            p.grad = torch.full_like(p, 0.5)
        optimizer = getattr(optim, name)(parameters, lr=0.01, fused=True, **options)
        for _ in range(2):
            optimizer.step()
        if parameters is on_npu:
            torch.npu.set_sync_debug_mode("error")
        try:
            for _ in range(3):
                optimizer.step()
        finally:
            torch.npu.set_sync_debug_mode("default")

    for a, b in zip(on_npu, on_cpu, strict=True):
        torch.testing.assert_close(a.detach().cpu(), b.detach())


def test_lbfgs_and_muon():
    def lbfgs(p):
        optimizer = optim.LBFGS([p], max_iter=5)

        def closure():
            optimizer.zero_grad()
            loss = (p**2).sum()
            loss.backward()
            return loss

        optimizer.step(closure)
        return p.detach()

    def muon(p):
        optimizer = optim.Muon([p], lr=0.01)
        (p**2).sum().backward()
        optimizer.step()
        return p.detach()

    both(lbfgs, torch.rand(4, requires_grad=True), rtol=1e-4)
    both(muon, torch.rand(4, 3, requires_grad=True), rtol=2e-2, atol=1e-3)


FUSED = [
    ("SGD", {"momentum": 0.9}, "momentum_buffer"),
    ("Adam", {"amsgrad": True}, "max_exp_avg_sq"),
    ("AdamW", {}, "exp_avg"),
    ("Adagrad", {}, "sum"),
]


def _transposed(t):
    return t.t().contiguous().t()


def _made(name, options, parameter, gradient):
    parameter = parameter.requires_grad_()
    parameter.grad = gradient
    return getattr(optim, name)([parameter], lr=0.5, **options), parameter


@pytest.mark.parametrize("lr", [0.5, "tensor"])
@pytest.mark.parametrize(("name", "options", "state"), FUSED)
def test_a_fused_step_refuses_what_its_kernel_would_misread(name, options, state, lr):
    """The kernels walk the memory of parameter, gradient and state in one loop."""
    values = torch.arange(1.0, 33.0).reshape(4, 8)
    if lr == "tensor":
        lr = torch.tensor(0.5, device="npu")
    fused = {**options, "fused": True, "lr": lr}

    def refused(parameter, gradient, change=None):
        parameter = parameter.requires_grad_()
        parameter.grad = gradient
        optimizer = getattr(optim, name)([parameter], **fused)
        if change:
            optimizer.step()
            change(optimizer.state[parameter])
        before = parameter.detach().cpu()
        with pytest.raises(
            RuntimeError, match="needs parameters without gaps and overlaps"
        ):
            optimizer.step()
        assert parameter.detach().cpu().equal(before)

    def transpose(of):
        of[state] = _transposed(of[state])

    refused(values.npu(), _transposed(values.npu()))
    refused(_transposed(values.npu()), values.npu())
    refused(values.npu()[:, ::2], values.npu()[:, ::2])
    refused(values.npu()[:, ::2], values.npu()[:, :4].contiguous())
    refused(values[0].npu().expand(4, 8), values.npu())
    if lr == 0.5 or name != "Adagrad":
        refused(values.npu(), values.npu(), transpose)


@pytest.mark.parametrize(
    ("sizes", "strides", "of_gradient"),
    [
        ((4, 1), (1, 1), (1, 4)),  # strides of a size of 1 say nothing
        ((2, 3, 4, 5), (60, 1, 15, 3), (60, 1, 15, 3)),  # channels last
        ((3, 4), (1, 3), (1, 3)),
        ((0, 4), (4, 1), (4, 1)),
        ((), (), ()),
    ],
)
@pytest.mark.parametrize(("name", "options", "_"), FUSED)
def test_a_fused_step_of_dense_tensors_is_the_plain_one(
    name, options, _, sizes, strides, of_gradient
):
    def stepped(**how):
        parameter = torch.empty_strided(sizes, strides, device="npu").fill_(1.0)
        gradient = torch.empty_strided(sizes, of_gradient, device="npu")
        count = gradient.numel()
        gradient.copy_(torch.linspace(0.5, 1.5, count, device="npu").reshape(sizes))
        optimizer, parameter = _made(name, {**options, **how}, parameter, gradient)
        for _ in range(3):
            optimizer.step()
        return parameter.detach()

    torch.testing.assert_close(stepped(fused=True), stepped(foreach=False))
