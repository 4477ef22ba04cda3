"""Decompositions, windows and losses: what PyTorch's operator database lacks."""

import pytest
import torch
import torch.nn.functional as F
from torch import linalg

from tests.ecosystem.both import both, same, with_gradients
from tests.graphs.captured import captured

SQUARE = torch.tensor([[4.0, 1.0, 0.5], [1.0, 3.0, 0.2], [0.5, 0.2, 5.0]]).double()


def test_a_result_whose_kernel_only_sets_the_conjugate_bit():
    lu, pivots = linalg.lu_factor(torch.randn(4, 4, dtype=torch.complex64))
    rows = torch.randn(3, 4, dtype=torch.complex64)

    for b in (rows, rows.mT.contiguous().mT):
        both(lambda *a: linalg.lu_solve(*a, left=False), lu, pivots, b)
        both(
            lambda *a: linalg.lu_solve(*a, left=False, out=torch.empty_like(a[2])),
            *(lu, pivots, b),
        )


REFUSE_NAN = [
    linalg.svd, linalg.svdvals, linalg.matrix_rank, linalg.pinv, linalg.cond,
    linalg.eig, linalg.eigh, linalg.eigvalsh, linalg.cholesky,
    torch.svd, torch.cholesky, torch.pca_lowrank,
    lambda a: linalg.norm(a, 2), lambda a: linalg.norm(a, "nuc"),
    lambda a: linalg.svdvals(a, out=torch.empty(0, device=a.device)),
    lambda a: linalg.svd(a.expand(2, 3, 3), full_matrices=False),
    lambda a: linalg.svd(a.requires_grad_()),
]  # fmt: skip


@pytest.mark.parametrize("function", REFUSE_NAN)
def test_a_decomposition_refuses_what_it_refuses_on_cpu_at_the_call(function):
    same(function, torch.full((3, 3), float("nan")))
    with pytest.raises(RuntimeError):
        function(torch.full((3, 3), float("nan"), device="npu"))


def test_a_singular_matrix_is_an_error_as_on_cpu():
    same(linalg.inv, torch.zeros(2, 2))


@pytest.mark.parametrize("function", [linalg.svdvals, linalg.eigvalsh])
def test_a_decomposition_is_captured(function):
    x = SQUARE.npu()
    function(x)
    graph, values = captured(lambda: function(x))
    x.mul_(2)

    graph.replay()

    torch.testing.assert_close(values.cpu(), function(SQUARE * 2))


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16])
@pytest.mark.parametrize("length", [0, 1, 2, 5, 64])
def test_windows(length, dtype):
    def windows(x):
        options = {"device": x.device, "dtype": dtype}
        yield torch.hann_window(length, **options)
        for periodic in (True, False):
            yield torch.kaiser_window(length, periodic, **options)
            yield torch.kaiser_window(length, periodic, 5.5, **options)

    for _ in range(2):
        both(lambda x: list(windows(x)), SQUARE, rtol=0, atol=0)


def test_a_window_is_captured_and_written_into():
    out = torch.empty(6, device="npu")
    torch.kaiser_window(6, device="npu")
    graph, window = captured(lambda: torch.kaiser_window(6, device="npu"))
    graph.replay()
    torch.ops.aten.kaiser_window.out(6, out=out)

    for found in (window, out):
        assert torch.equal(found.cpu(), torch.kaiser_window(6))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_chunked_linear_cross_entropy_sums_in_the_type_that_cpu_sums_in(dtype):
    options = torch.nn.LinearCrossEntropyOptions(batch_chunk_size=4)
    torch.manual_seed(0)
    x, weight = torch.randn(16, 8, dtype=dtype), torch.randn(32, 8, dtype=dtype)

    def loss(x, weight, target):
        return F.linear_cross_entropy(x, weight, target, options=options)

    both(with_gradients(loss), x.requires_grad_(), weight.requires_grad_(),
         torch.randint(32, (16,)), rtol=0, atol=0)  # fmt: skip
