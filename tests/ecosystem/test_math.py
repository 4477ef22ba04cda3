"""torch.fft, torch.linalg and torch.special."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fft, linalg, special

from tests.ecosystem.both import both, with_gradients

SQUARE = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 5.0]]).double()


@pytest.mark.parametrize(
    "function",
    [
        fft.fft, fft.rfft, fft.fft2, fft.rfftn, fft.fftshift,
        lambda x: fft.irfft(fft.rfft(x)), lambda x: fft.ifft(x, norm="ortho"),
        lambda x: fft.hfft(x.to(torch.complex128)), lambda x: fft.fft(x, n=5, dim=0),
        lambda x: torch.stft(x.flatten(), 4, return_complex=True,
                             window=torch.ones(4, device=x.device).double()),
    ],
)  # fmt: skip
def test_fft(function):
    both(with_gradients(function), SQUARE.clone().requires_grad_())


@pytest.mark.parametrize(
    "function",
    [
        linalg.inv, linalg.det, linalg.cholesky, linalg.eigvalsh, linalg.svdvals,
        linalg.slogdet, linalg.matrix_exp, linalg.pinv, linalg.norm, linalg.cond,
        lambda a: linalg.qr(a)[1].abs(), lambda a: linalg.lu_factor(a)[0],
        lambda a: linalg.solve(a, a[:, :1]), lambda a: linalg.matrix_power(a, 3),
        lambda a: linalg.solve_triangular(a.tril(), a, upper=False),
        lambda a: linalg.lstsq(a, a[:, :1])[0], lambda a: torch.cholesky_inverse(a),
        lambda a: linalg.eigh(a)[0], lambda a: linalg.multi_dot([a, a, a]),
        lambda a: linalg.vander(a[0]), lambda a: torch.logdet(a),
    ],
)  # fmt: skip
def test_linalg(function):
    both(with_gradients(function), SQUARE.clone().requires_grad_(), rtol=1e-6)


def test_linalg_without_gradients():
    both(lambda a: [linalg.matrix_rank(a), linalg.eigvals(a).real.sort()[0]], SQUARE)
    both(lambda a: linalg.ldl_factor(a)[0], SQUARE)


def test_a_result_whose_kernel_only_sets_the_conjugate_bit():
    lu, pivots = linalg.lu_factor(torch.randn(4, 4, dtype=torch.complex64))
    rows = torch.randn(3, 4, dtype=torch.complex64)

    for b in (rows, rows.mT.contiguous().mT):
        both(lambda *a: linalg.lu_solve(*a, left=False), lu, pivots, b)
        both(
            lambda *a: linalg.lu_solve(*a, left=False, out=torch.empty_like(a[2])),
            *(lu, pivots, b),
        )


def test_a_singular_matrix_is_an_error_as_on_cpu():
    with pytest.raises(linalg.LinAlgError, match="singular"):
        linalg.inv(torch.zeros(2, 2).npu())
    torch.npu.synchronize()


@pytest.mark.parametrize(
    "function",
    [
        special.erf, special.erfinv, special.digamma, special.gammaln, special.i0e,
        special.i1, special.expit, special.logit, special.ndtri, special.log_ndtr,
        special.entr, special.bessel_j0, special.sinc, special.xlog1py,
        lambda x, y=None: special.zeta(x + 1, x + 2),
        lambda x: special.gammainc(x, x + 1), lambda x: special.polygamma(1, x),
        lambda x: special.logsumexp(x, 0), lambda x: special.multigammaln(x + 2, 2),
    ],
)  # fmt: skip
def test_special(function):
    x = torch.linspace(0.1, 0.9, 7)
    if function is special.xlog1py:
        both(function, x, x)
    else:
        both(function, x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_chunked_linear_cross_entropy_sums_in_the_type_that_cpu_sums_in(dtype):
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=4)
    torch.manual_seed(0)
    x, weight = torch.randn(16, 8, dtype=dtype), torch.randn(32, 8, dtype=dtype)

    def loss(x, weight, target):
        return F.linear_cross_entropy(x, weight, target, options=options)

    both(with_gradients(loss), x.requires_grad_(), weight.requires_grad_(),
         torch.randint(32, (16,)), rtol=0, atol=0)  # fmt: skip
