"""Autograd: checkpointing, torch.func, forward mode, hooks, backwards that fail."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.ecosystem.both import both, in_threads

X = torch.linspace(-1, 1, 12).view(3, 4)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_the_same_dropout(reentrant):
    x = torch.ones(1000).npu().requires_grad_()

    def block(t):
        return torch.nn.functional.dropout(t, 0.5)

    y = checkpoint(block, x, use_reentrant=reentrant)
    y.sum().backward()

    assert torch.equal(x.grad, y.detach())


TRANSFORMS = """
grad(lambda t: t.sin().sum())(x)
vmap(lambda t: t.cumsum(0) * t)(x)
vmap(grad(lambda t: t.exp().prod()))(x)
jacrev(lambda t: t @ t.t())(x)
jacfwd(lambda t: t.softmax(-1))(x)
hessian(lambda t: (t**3).sum())(x)
jvp(torch.tanh, (x,), (x,))
vjp(torch.tanh, x)[1](x)
vmap(torch.linalg.norm, in_dims=1)(x)
functional_call(nn.Linear(4, 2), {"weight": x[:2], "bias": x[0, :2]}, (x,))
"""


@pytest.mark.parametrize("call", TRANSFORMS.strip().splitlines())
def test_transforms_of_functions(call):
    names = {"torch": torch, "nn": nn, **vars(torch.func)}
    both(lambda x: eval(call, names | {"x": x}), X)


def test_vmap_draws_as_told():
    x = torch.zeros(4, 8).npu()

    def drawn(how):
        return torch.func.vmap(lambda t: t + torch.rand_like(t), randomness=how)(x)

    same, different = drawn("same"), drawn("different")

    assert torch.equal(same[0], same[1])
    assert not torch.equal(different[0], different[1])


def test_double_backward():
    def run(x):
        (first,) = torch.autograd.grad((x.tanh() ** 2).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.pow(2).sum(), x)
        return first, second

    both(run, X.clone().requires_grad_())
    layer = nn.Conv1d(1, 2, 3).double()
    x = torch.rand(1, 1, 6, dtype=torch.float64).npu().requires_grad_()
    assert torch.autograd.gradgradcheck(layer.npu(), (x,))


def test_anomaly_mode_names_the_function():
    x = torch.zeros(2).npu().requires_grad_()

    said = pytest.raises(RuntimeError, match=r"SqrtBackward0.*nan")
    with said, pytest.warns(UserWarning), torch.autograd.detect_anomaly():
        (x.sqrt() * 0).sum().backward()


MIB = 1 << 20


def fail(x, ask=lambda loss, _: loss.backward()):
    """Run a backward that fails when gradients of 32 MiB wait for their turn."""
    sums = [(x * i).exp() for i in range(1, 9)]
    sums[-1].register_hook(lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        ask(torch.stack(sums).sum(), x)


def leaf():
    return torch.zeros(MIB, device="npu", requires_grad=True)


FAIL = {
    "backward": fail,
    "in another thread": lambda x: in_threads(lambda: fail(x)),
    "torch.autograd.grad": lambda x: fail(x, torch.autograd.grad),
}


@pytest.mark.parametrize("how", FAIL)
def test_gradients_of_a_backward_that_fails_are_freed(how):
    x = leaf()
    torch.npu.synchronize()
    before = torch.npu.memory_allocated()
    FAIL[how](x)
    torch.npu.synchronize()
    assert torch.npu.memory_allocated() == before
    (x * 3).sum().backward()
    assert x.grad[0].item() == 3


def test_one_inside_of_another_leaves_the_outer_one_alone():
    """What a checkpoint computes again fails, and somebody catches that."""
    x = leaf()

    class Careful(torch.autograd.Function):
        @staticmethod
        def forward(ctx, y):
            return y * 1

        @staticmethod
        def backward(ctx, grad):
            inner = torch.zeros(MIB, device="npu", requires_grad=True)
            with torch.enable_grad():
                fail(inner)
            return grad

    y = Careful.apply(x) + checkpoint(lambda z: z * 2, x, use_reentrant=False)
    y.sum().backward()
    assert x.grad[0].item() == 3


def test_a_choice_of_autograds_threads_stands(python):
    python("""
import torch

with torch.autograd.set_multithreading_enabled(True):
    x = torch.ones(2, device="npu", requires_grad=True)  # the thread's first call
    (x * 2).sum().backward()
    assert torch._C._is_multithreading_enabled()
assert not torch._C._is_multithreading_enabled()
assert x.grad.tolist() == [2, 2]
""")


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
