"""Nested and quantized tensors, complex views, conj and neg bits, against cpu."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.ecosystem.both import alike, both, outcome, with_gradients

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def pieces():
    torch.manual_seed(0)
    return [torch.rand(n, 4) for n in (2, 3, 1)]


def on(device, module):
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.uniform_(parameter)
    return module.to(device)


CASES = {
    "to_padded_tensor": lambda n: n.to_padded_tensor(0.5),
    "arithmetic": lambda n: n * 2 + n - n / 3,
    "neg": lambda n: -n,
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softmax": lambda n: torch.softmax(n, -1),
    "sum": lambda n: n.sum(-1, keepdim=True),
    "matmul": lambda n: n @ n.transpose(1, 2),
    "bmm": lambda n: torch.bmm(n, n.transpose(1, 2)),
    "unbind": lambda n: n.unbind()[1],
    "select": lambda n: n.select(0, 1),
    "dropout": lambda n: F.dropout(n, 0.0, training=True),
    "clone": lambda n: n.clone(),
    "dtype": lambda n: n.to(torch.float64).to(torch.float32),
    "linear": lambda n: on(n.device.type, nn.Linear(4, 5))(n),
    "layer_norm": lambda n: on(n.device.type, nn.LayerNorm(4))(n),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    def run(device):
        parts = [p.to(device).requires_grad_() for p in pieces()]
        out = CASES[case](torch.nested.as_nested_tensor(parts))
        if out.is_nested:
            out = out.to_padded_tensor(0.0)
        assert out.device.type == device
        loss = out.pow(2).sum()
        return out, *torch.autograd.grad(loss, parts, materialize_grads=True)

    alike(run)


def test_nested_tensors_are_made_moved_and_taken_apart():
    made = torch.nested.nested_tensor(pieces(), device="npu")
    moved = torch.nested.nested_tensor(pieces()).to("npu")

    for nested in (made, moved, made.clone(), moved.cpu().npu()):
        assert nested.is_nested
        assert nested.device.type == "npu"
        assert nested.size(0) == 3
        for ours, expected in zip(nested.unbind(), pieces(), strict=True):
            assert torch.equal(ours.cpu(), expected)
    assert "npu:0" in str(made)


def test_an_update_in_place_reaches_the_parts():
    nested = torch.nested.nested_tensor(pieces(), device="npu")

    nested.mul_(2)
    nested.unbind()[0].zero_()

    parts = [p.cpu() for p in nested.unbind()]
    assert not parts[0].any()
    assert torch.equal(parts[1], pieces()[1] * 2)


def test_a_layer_of_a_transformer_takes_them():
    def run(device):
        layer = on(device, nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
        nested = torch.nested.nested_tensor(pieces(), device=device)
        with torch.no_grad():
            return layer.eval()(nested).to_padded_tensor(0.0)

    alike(run)


@pytest.mark.parametrize(
    "call",
    [
        lambda n: n.transpose(1, 2).to_padded_tensor(0.0),
        lambda n: n + torch.nested.nested_tensor(pieces()[:2], device=n.device),
        lambda n: n.size(1),
    ],
)
def test_wrong_calls_are_refused_as_on_cpu(call):
    expected, got = (
        outcome(call, torch.nested.nested_tensor(pieces(), device=device))
        for device in ("cpu", "npu")
    )
    assert got == expected and expected[0] is RuntimeError


# Of a jagged tensor, of a matrix that is quantized, and of a complex matrix.
JAGGED = """
n * 2
F.relu(n - 0.5)
n.sum(-1)
F.layer_norm(n, (4,))
n @ torch.eye(4, device=n.device)
"""
QUANTIZED = """
torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255)
torch.fake_quantize_per_channel_affine(x, x[:, 0] / 8, x[:, 0].int() * 0, 0, -128, 127)
torch.ops.aten._weight_int8pack_mm(x.bfloat16(), (x * 4).char(), x[:, 0].bfloat16())
"""
COMPLEX = """
torch.view_as_real(z) + 1
torch.view_as_complex(torch.view_as_real(z).clone())
z.real.add_(1) + z.imag
z.conj() @ z.t()
z.conj().imag
z.conj().imag.clone()
z.conj().clone().add_(z.conj())
z.conj().resolve_conj()
(z.conj().imag + 1).resolve_neg()
torch.cat([z.conj(), z]).sum(0)
z.mH[1:].conj().t() * 2
z.conj()[[0, 2]]
torch.empty_like(z).copy_(z.conj())
"""


def of(call, **names):
    return eval(call, {"torch": torch, "F": F, **names})


@pytest.mark.parametrize("call", JAGGED.strip().splitlines())
def test_jagged(call):
    def run(*parts):
        return of(call, n=torch.nested.nested_tensor(list(parts), layout=torch.jagged))

    both(run, torch.rand(2, 4), torch.rand(3, 4))


@pytest.mark.parametrize("call", QUANTIZED.strip().splitlines())
def test_quantization(call):
    both(lambda x: of(call, x=x), torch.rand(3, 32))


@pytest.mark.parametrize("call", COMPLEX.strip().splitlines())
def test_complex_views_and_their_bits(call):
    z = torch.randn(3, 4, dtype=torch.complex64)
    both(lambda z: of(call, z=z), z)
    both(with_gradients(lambda z: of(call, z=z * 1)), z.requires_grad_())
