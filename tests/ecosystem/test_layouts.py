"""Nested and quantized tensors, complex views, conj and neg bits."""

from __future__ import annotations

import pytest
import torch

from tests.ecosystem.both import both, with_gradients


@pytest.mark.parametrize(
    "function",
    [
        lambda n: n * 2,
        lambda n: torch.nn.functional.relu(n - 0.5),
        lambda n: n.sum(-1),
        lambda n: torch.nn.functional.layer_norm(n, (4,)),
        lambda n: n @ torch.eye(4, device=n.device),
    ],
)
def test_jagged(function):
    parts = [torch.rand(2, 4), torch.rand(3, 4)]

    def run(*parts):
        return function(torch.nested.nested_tensor(list(parts), layout=torch.jagged))

    both(run, *parts)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, 0, 255),
        lambda x: torch.fake_quantize_per_channel_affine(
            x, torch.ones(3, device=x.device) / 8,
            torch.zeros(3, dtype=torch.int32, device=x.device), 0, -128, 127),
        lambda x: torch.ops.aten._weight_int8pack_mm(
            x.bfloat16(), (x * 4).char(), torch.ones(3, device=x.device).bfloat16()),
    ],
)  # fmt: skip
def test_quantization(function):
    both(function, torch.rand(3, 32))


COMPLEX = torch.randn(3, 4, dtype=torch.complex64)


@pytest.mark.parametrize(
    "function",
    [
        lambda z: torch.view_as_real(z) + 1,
        lambda z: torch.view_as_complex(torch.view_as_real(z).clone()),
        lambda z: z.real.add_(1) + z.imag,
        lambda z: z.conj() @ z.t(),
        lambda z: z.conj().imag,
        lambda z: z.conj().imag.clone(),
        lambda z: z.conj().clone().add_(z.conj()),
        lambda z: z.conj().resolve_conj(),
        lambda z: (z.conj().imag + 1).resolve_neg(),
        lambda z: torch.cat([z.conj(), z]).sum(0),
        lambda z: z.mH[1:].conj().t() * 2,
        lambda z: z.conj()[[0, 2]],
        lambda z: torch.empty_like(z).copy_(z.conj()),
    ],
)
def test_complex_views_and_their_bits(function):
    both(function, COMPLEX)
    both(with_gradients(lambda z: function(z * 1)), COMPLEX.clone().requires_grad_())
