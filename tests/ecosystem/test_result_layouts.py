"""Results have cpu's values and strides, however arguments and gradients lie."""

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.conformance.check import failures
from tests.conformance.checks import Checker, Options
from tests.ecosystem.both import same

# Operators whose strides are ours, and those with kernels of ours for 16 bits. The gate
# tries a third of PyTorch's operator database; these are tried each time.
STRIDED = {
    *("log_softmax", "softmax", "nn.functional.cross_entropy", "cumsum", "div"),
    *("nn.functional.pad", "nn.functional.layer_norm", "abs", "nn.functional.gelu"),
    *("nn.functional.ctc_loss", "nn.functional.batch_norm", "copysign", "complex"),
    *("nn.functional.max_pool2d", "nn.functional.interpolate", "floor_divide", "add"),
    *("logical_and", "logical_not", "heaviside", "nn.functional.avg_pool2d", "sub"),
    *("fft.fftn", "fft.irfftn", "fft.rfftn", "nn.functional.upsample_nearest", "where"),
}
HALF = {
    *("mm", "addmm", "bmm", "baddbmm", "matmul", "nn.functional.linear"),
    *("nn.functional.conv1d", "nn.functional.conv2d", "nn.functional.conv3d"),
    *("nn.functional.conv_transpose2d", "nn.functional.conv_transpose3d"),
}


def of(names):
    return [pytest.param(op, id=op.full_name) for op in op_db if op.name in names]


def check(op, **options):
    record = Checker(Options(**options)).operator(op)
    assert not list(failures(record))


@pytest.mark.parametrize("op", of(STRIDED))
def test_strides_of_results_and_gradients_are_those_of_cpu(op):
    check(op, variants=("layouts",), samples=2)


@pytest.mark.parametrize("op", of(HALF))
def test_16_bits(op):
    half = ("float16", "bfloat16")
    variants = ("fwd", "inplace", "bwd", "noncontig")
    check(op, dtypes=half, backward_dtypes=half, variants=variants)


def permuted(t):
    """The same values, the dimensions in memory in the reverse order."""
    reverse = tuple(reversed(range(t.dim())))
    return t.permute(reverse).contiguous().permute(reverse)


@pytest.mark.parametrize("name", ["mul", "add", "maximum", "atan2"])
def test_an_out_argument_is_resized_to_the_strides_of_a_new_result(name):
    def run(a):
        own, out = permuted(a), torch.empty(0, device=a.device)
        assert getattr(torch, name)(own, own, out=out) is out
        return out

    same(run, torch.randn(3, 4, 5))


def test_an_operator_whose_strides_nobody_foresees_waits_once_not_always():
    """Of a layout that is too large to be tried, one call tells the strides."""
    x = torch.rand(300, 301).npu()
    for _ in range(2):
        x.t().abs()
    with torch.npu.sync_guard("error"):
        for width in (302, 303):
            own = torch.empty(300, width, device="npu").t()
            assert own.abs().stride() == own.stride()


@pytest.mark.parametrize(
    ("function", "make"),
    [
        (lambda x: torch.linalg.eig(x)[1].abs(), lambda n: torch.rand(n, n)),
        (lambda x: torch.fft.rfftn(x, dim=(0, 1)), lambda n: torch.rand(n, n + 1, 4)),
        (lambda x: torch.nonzero_static(x, size=5), lambda n: torch.eye(n)),
    ],
    ids=["eigenvectors", "transform", "places"],
)
def test_what_a_trial_has_told_of_the_strides_holds_for_other_sizes(function, make):
    for n in (3, 4, 6, 5):
        x = make(n)
        got, expected = function(x.npu()), function(x)
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
        assert got.stride() == expected.stride()
