"""Optimizers of torch.optim: plain, foreach, fused and capturable."""

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
    if name not in ("Optimizer", "SparseAdam")
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

        def loss():
            optimizer.zero_grad()
            loss = sum((p**2).sum() for p in parameters)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(loss)
        return [p.detach() for p in parameters]

    muon = name == "Muon"  # which takes matrices, and multiplies in 16 bits
    shapes = ((4, 3),) if muon else ((4, 3), (5,))
    parameters = [torch.rand(shape, requires_grad=True) for shape in shapes]
    least = 1e-6 if name == "LBFGS" else 1e-5
    near = {"rtol": 2e-2, "atol": 1e-3} if muon else {"rtol": 1e-4, "atol": least}
    both(run, *parameters, **near)


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
        with torch.npu.sync_guard("error"):
            for _ in range(3):
                optimizer.step()

    torch.testing.assert_close(on_npu, on_cpu, check_device=False)


FUSED = [
    ("SGD", {"momentum": 0.9}, "momentum_buffer"),
    ("Adam", {"amsgrad": True}, "max_exp_avg_sq"),
    ("AdamW", {}, "exp_avg"),
    ("Adagrad", {}, "sum"),
]


def _transposed(t):
    return t.t().contiguous().t()


def _made(name, parameter, gradient, **options):
    parameter = parameter.requires_grad_()
    parameter.grad = gradient
    return getattr(optim, name)([parameter], **options), parameter


@pytest.mark.parametrize("lr", [0.5, "tensor"])
@pytest.mark.parametrize(("name", "options", "state"), FUSED)
def test_a_fused_step_refuses_what_its_kernel_would_misread(name, options, state, lr):
    """The kernels walk the memory of parameter, gradient and state in one loop."""
    values = torch.arange(1.0, 33.0).reshape(4, 8)
    if lr == "tensor":
        lr = torch.tensor(0.5, device="npu")
    fused = {**options, "fused": True, "lr": lr}

    def refused(parameter, gradient, change=None):
        optimizer, parameter = _made(name, parameter, gradient, **fused)
        if change:
            optimizer.step()
            change(optimizer.state[parameter])
        before = parameter.detach().cpu()
        with pytest.raises(RuntimeError, match="parameters without gaps and overlaps"):
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
        values = torch.linspace(0.5, 1.5, gradient.numel(), device="npu")
        gradient.copy_(values.reshape(sizes))
        optimizer, parameter = _made(
            name, parameter, gradient, lr=0.5, **options, **how
        )
        for _ in range(3):
            optimizer.step()
        return parameter.detach()

    torch.testing.assert_close(stepped(fused=True), stepped(foreach=False))
