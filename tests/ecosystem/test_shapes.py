"""Calls whose shapes change from one to the next, as cpu makes them."""

import itertools
import random
import re
import sys
from contextlib import contextmanager
from pathlib import Path

import heap
import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db

from npu_dispatch import _C
from tests.ecosystem.both import in_threads, same, to

# Calls of a, b, c, d | what these are made of, by two numbers.
CALLS = """
torch.add(a, b) | rand(n, c), rand(c)
torch.add(a, b) | rand(n, c).t(), rand(c, n)
a.mul_(b) | rand(n, c), rand(n, 1)
torch.mm(a, b) | rand(n, c), rand(c, 3)
torch.addmm(a, b, c) | rand(3), rand(n, c), rand(c, 3)
torch.softmax(a, 1) | rand(n, c, 2)
a.sum((0, 2)) | rand(n, c, 2)
torch.cat((a, b), 1) | rand(n, c), rand(n, 2)
torch.topk(a, 2) | rand(n, c)
F.gelu(a) | rand(n, c)
torch.where(a, b, c) | rand(n, c) > 0.5, rand(n, c), rand(c)
torch.clone(a) | rand(n, c).t()
a.copy_(b) | rand(n, c), rand(c, n).t()
F.layer_norm(a, b.shape, b, c) | rand(n, 2, c), rand(c), rand(c)
F.group_norm(a, 2) | rand(n, 4, c)
F.group_norm(a, 2, b, c) | image(n, 4), rand(4), rand(4)
F.rms_norm(a, b.shape, b) | rand(n, 2, c), rand(c)
F.cross_entropy(a, b) | rand(n, c), count(n) % c
F.cross_entropy(a, b, label_smoothing=0.1) | rand(n, c, 3, n), count(n, 3, n) % c
F.cross_entropy(a, b, reduction="none") | rand(n, c, 3, n), count(n, 3, n) % c
F.binary_cross_entropy(a, b) | rand(n, c), rand(n, c)
F.binary_cross_entropy(a, b, reduction="none") | rand(n, c).t(), rand(n, c).t()
F.binary_cross_entropy_with_logits(a, b, pos_weight=torch.ones_like(a[0])) | rand(n, c), rand(n, c)
F.logsigmoid(a) | rand(n, c).t()
F.max_pool1d(a, 2) | rand(n, 2, c)
a.roll(1, 0) | rand(n, c)
torch.logit(a) | rand(n, c)
torch.prod(a) | rand(n, c)
(a.prod(), a.prod(dtype=torch.float64), (a > 1).prod()) | count(n, c) + 1
torch.view_as_real(torch.fft.fft(torch.fft.rfft(a))) | rand(n, c + 2)
torch.fft.irfft(torch.fft.rfft(a), a.shape[1]) | rand(n, c + 2)
torch.view_as_real(torch.fft.fft(torch.fft.rfft(a, dim=0), dim=1)) | rand(n, c + 2, 3)
torch.view_as_real(torch.fft.fftn(torch.fft.rfft2(a))) | image(n, c)
torch.view_as_real(torch.fft.fftn(torch.fft.rfftn(a, dim=(3, 1)))) | image(n, c).transpose(0, 2)
torch.fft.irfft2(torch.fft.rfft2(a), a.shape[2:]) | image(n, c)
torch.fft.irfftn(torch.fft.rfft(a, dim=0), a.shape[:2], dim=(1, 0)) | rand(n, c + 2, 3).mT
F.l1_loss(a, b) | rand(n, c), rand(n, c)
F.mse_loss(a, b) | rand(n, c).t(), rand(c, n)
F.smooth_l1_loss(a, b) | rand(n, c), rand(n, c)
F.glu(a) | rand(n, 2 * c)
torch._safe_softmax(a, -1) | rand(n, c)
torch.where(a, b, 2.0) | rand(n, c) > 0.5, rand(n, c)
torch.isclose(a, b) | rand(n, c), rand(n, c)
torch.nan_to_num(a) | rand(n, c).t()
torch.arange(9, -len(a), -2, device=a.device) + a[0] | rand(n)
torch.arange(0.5, len(a), 0.75, device=a.device) | rand(n)
F.embedding(a, b) | count(n, 2) % c, rand(c, 3)
F.embedding_bag(a, b, c, include_last_offset=True, padding_idx=0) | count(n * 2) % c, rand(c, 3), count(n) * 2
F.scaled_dot_product_attention(a, b, c) | *heads(n, c)
F.scaled_dot_product_attention(*(t.unsqueeze(1) for t in a.chunk(3, -1))) | rand(2, n, 3 * c)
F.scaled_dot_product_attention(a, b, c, d) | *heads(n, c), rand(n, c) > -1
F.conv2d(a, b, c, padding=1) | image(n, 3), rand(4, 3, 3, 3), rand(4)
F.conv1d(a, b, stride=2, groups=2, dilation=2) | rand(n, 4, 9 + c), rand(6, 2, 3)
F.conv_transpose2d(a, b, c, stride=2, padding=1, output_padding=1, groups=2) | image(n, 4), rand(4, 3, 3, 3), rand(6)
F.batch_norm(a, None, None, training=True) | image(n, c)
F.max_pool2d(a, 2) | image(n, c)
a[b] | rand(n, c), count(c) % n
torch.nonzero(a) | count(n, c) % 3
a[:, b] | rand(n, c), count(c) % 2 == 0
a.index_select(0, b) | rand(n, c), count(c) % n
a.masked_fill_(b, 2.0) | rand(n, c), rand(c) > 0.5
a[len(a) // 2] | rand(n, c)
a[1:-1] * 2 | rand(n + 2, c)
a[-len(a):7:3] | rand(n + 2, c)
F.pad(a, (1, 2)) | image(n, c)
F.pad(a, (1, -2, -3, 4)) | image(n, c)
torch.arange(len(a)).to(a.device) | rand(n)
a.roll(2, 1) | image(n, c)
F.embedding_bag(a, b, c, mode="sum") | count(n * 2) % c, rand(c, 3), count(n) * 2
F.embedding_bag(a, b, c, mode="mean") | count(n * 2) % c, rand(c, 3), count(n) * 2
F.embedding_bag(a, b, c, mode="max") | count(n * 2) % c, rand(c, 3), count(n) * 2
torch.linalg.solve(a, b) | definite(n), rand(n, c)
torch.linalg.inv(a) | definite(n), rand(n, c)
torch.linalg.det(a) | definite(n), rand(n, c)
"""  # noqa: E501

# Those whose shapes torch's meta kernels tell, of which some are Python.
BY_META_KERNELS = """
F.grid_sample(a, b, align_corners=False) | rand(n, 2, c, 3, 2), rand(n, 4, c, 2, 3)
F.max_pool3d(a, 2, ceil_mode=True) | rand(n, 2, c, 3, 4)
a.kthvalue(2, 0) | rand(n, c)
a.mode(0) | rand(n, c)
torch.trace(a) | rand(n, c)
torch.view_as_real(torch.polar(a, b)) | rand(n, c), rand(n, c)
torch.take(a, b) | rand(n, c), count(c, n)
torch.addr(a, b, c) | rand(n, c), rand(n), rand(c)
torch.eye(len(a), 3, device=a.device) | rand(n)
torch.linspace(0, 1, len(a), device=a.device) | rand(n)
F.adaptive_avg_pool3d(a, (2, 3, len(a))) | rand(n, c, 4, 5, 6)
F.pad(a, (1, 2, 3, 0), mode="replicate") | image(n, c)
F.pad(a, (1, 2, 3, 0, 1, 1), mode="replicate") | rand(n, c, 2, 3, n)
torch.addbmm(a, b, c) | rand(3), rand(2, n, c), rand(2, c, 3)
torch.frexp(a) | rand(n, c).t()
torch.histc(a.detach(), 3 + len(a), 0, 1) | rand(n, c)
a.masked_scatter(b, c) | rand(n, c), count(c) % 2 == 0, rand(n * c)
torch.pdist(a) | rand(n, c)
F.soft_margin_loss(a, b.detach()) | rand(n, c), rand(n, c).round() * 2 - 1
torch.mvlgamma(a, 2) | rand(n, c) + 3
F.grid_sample(a, b, align_corners=False) | rand(n, 2, c, 3), rand(n, 4, c, 2)
F.unfold(a, 2) | rand(n, 2, c + 1, n)
F.fold(a, (a.shape[2] // len(a) + 1, len(a) + 1), 2) | rand(n, 8, c * n)
a.median(-1, keepdim=True) | rand(n, c)
a.flip(1) | rand(n, c)
a.count_nonzero((0, -1)) | count(n, c, 2)
torch.cdist(a, b) | rand(n, 3), rand(c, 3)
torch.bucketize(a, b) | rand(n, c).double().mul(9).long(), count(c)
torch.searchsorted(a, b) | count(c), count(n, 2)
torch.searchsorted(a, b) | count(n, c), count(n, 2)
F.huber_loss(a, b) | rand(n, c), rand(n, c)
torch.multinomial(a, 1).shape and a * 1 | torch.eye(n, c) + 1e-30
F.pixel_shuffle(a, 2) | image(n, 4 * c)
F.pixel_unshuffle(a, 2) | rand(n, c, 2 * n, 4)
F.channel_shuffle(a.detach(), 2) | image(n, 4)
F.pad(a, (1, 2, 3, 0), mode="reflect") | image(n, c)
torch.linalg.cholesky(a) | definite(n), rand(n, c)
torch.linalg.solve_triangular(a, b, upper=True) | definite(n), rand(n, c)
torch.linalg.qr(a if len(a) > len(a.mT) else a.mT) | rand(n, c)
"""


def rand(*sizes):
    return torch.rand(*sizes)


def count(*sizes):
    return torch.arange(torch.Size(sizes).numel()).view(sizes)


def image(n, c):
    """Return images whose layout follows from their size."""
    t = rand(n, c, 5 + n, 6)
    return t.contiguous(memory_format=torch.channels_last) if n % 2 else t


def heads(n, c):
    return [rand(2, 2, length, 8) for length in (n, c, c)]


def definite(n):
    a = rand(n, n) + torch.eye(n) * 4
    return a @ a.mT


NAMES = {f.__name__: f for f in (rand, count, image, heads, definite)}
TABLES = [table.strip().splitlines() for table in (CALLS, BY_META_KERNELS)]


def results(call, arguments):
    """Return a call's results and its gradients."""
    leaves = [a.requires_grad_() if a.is_floating_point() else a for a in arguments]
    given = [a.clone() if a.is_floating_point() else a for a in leaves]
    names = {"torch": torch, "F": F, **dict(zip("abcd", given, strict=False))}
    outs = eval(call, names)
    outs = [outs] if isinstance(outs, torch.Tensor) else list(outs)
    found = [o.detach() for o in outs]
    if outs[0].requires_grad:
        outs[0].square().sum().backward()
        found += [a.grad for a in leaves if a.grad is not None]
    return found


META_FUNCTIONS = re.compile(r"torch/(_meta_registrations|_decomp|_refs|_prims)")


@contextmanager
def asked():
    """Note which of torch's Python functions tell shapes within a block."""
    names = []

    def look(frame, event, arg):
        if event == "call" and META_FUNCTIONS.search(frame.f_code.co_filename):
            names.append(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        yield names
    finally:
        sys.setprofile(None)


def arguments_of(made, n, c):
    torch.manual_seed(n * 100 + c)
    return eval(f"({made},)", {"torch": torch, **NAMES, "n": n, "c": c})


@pytest.mark.parametrize("row", itertools.chain(*TABLES))
def test_each_shape_gives_what_cpu_gives(row):
    call, made = row.split(" | ")
    corrected = _C.shape_corrections()
    order = [(n, c) for n in (2, 3, 5, 8) for c in (2, 3, 7)]
    random.Random(1).shuffle(order)
    for n, c in [*order, *order[::2]]:
        on_npu = results(call, [a.npu() for a in arguments_of(made, n, c)])
        on_cpu = results(call, list(arguments_of(made, n, c)))
        for a, b in zip(on_cpu, on_npu, strict=True):
            assert a.dtype == b.dtype and a.shape == b.shape, (n, c)
            assert a.stride() == b.stride(), (n, c)
            torch.testing.assert_close(b.cpu(), a, rtol=1e-4, atol=1e-4)
    assert _C.shape_corrections() == corrected


@pytest.mark.parametrize("row", TABLES[0])
def test_no_python_is_asked_for_another_shape(row):
    call, made = row.split(" | ")
    for n, c in [(3, 4), (6, 5), (7, 8)]:
        on_npu = [a.npu() for a in arguments_of(made, n, c)]
        if n == 3:  # the first call of its kind may ask
            results(call, on_npu)
            continue
        with asked() as names:
            results(call, on_npu)
        assert not names, (n, c)


def test_no_python_tells_shapes_because_others_were_negative():
    """Tensors that stand for arguments keep no mark of calls before."""
    results = []

    def calls():
        for rank in range(1, 12):
            ones = torch.ones((1,) * rank, dtype=torch.complex64, device="npu")
            negative = ones.conj().imag
            assert negative.is_neg()
            negative.neg_()
        x = torch.rand(4, 6).npu()[:, ::2]
        with asked() as names:
            results.extend([x, x.square()])
        results.append(names)

    # Each thread has stand-ins of its own, which are new here.
    in_threads(calls)
    x, squares, names = results
    assert torch.equal(squares.cpu(), x.cpu().square())
    assert not names


OPERATORS = """
abs add addmm all amax argmax bmm cat clamp complex cumsum diff div dot fill flip
full_like gather index_add index_put index_select isclose isfinite isin kthvalue lerp
linalg.vector_norm logical_and logical_not logsumexp masked_fill max mean median
nan_to_num norm polar pow prod quantile remainder repeat roll scatter scatter_add
select_scatter softmax sort std sum tril trace var_mean where nn.functional.layer_norm
nn.functional.conv2d nn.functional.avg_pool2d nn.functional.batch_norm
nn.functional.embedding nn.functional.gelu nn.functional.interpolate
nn.functional.l1_loss nn.functional.mse_loss nn.functional.nll_loss nn.functional.pad
nn.functional.scaled_dot_product_attention nn.functional.silu
"""
CHECKED = [o for o in op_db if o.name in OPERATORS.split()]


@pytest.mark.parametrize("op", CHECKED, ids=lambda o: o.name)
def test_no_shape_is_corrected_by_a_run_on_zeros(op):
    """A shape function that is wrong costs time, and no result shows it."""
    before = _C.shape_corrections()
    for sample in op.sample_inputs("cpu", torch.float32):
        sample = sample.transform(lambda t: to(t, "npu"))
        op(sample.input, *sample.args, **sample.kwargs)
        assert _C.shape_corrections() == before, sample
    torch.npu.synchronize()


def test_a_wrong_empty_argument_is_refused_where_one_with_elements_was_right():
    x, weight = torch.ones(5, 3).npu(), torch.ones(10, 3).npu()
    F.linear(x, weight, torch.ones(10).npu())
    with pytest.raises(RuntimeError, match=r"\(10\) must match .* \(0\)"):
        F.linear(x, weight, torch.ones(0).npu())


@pytest.mark.parametrize("rank", [65, 256, 300])
def test_a_tensor_may_have_more_dimensions_than_a_byte_counts(rank):
    x = torch.arange(6.0).view([2] + [1] * (rank - 2) + [3])
    for call in (
        lambda t: t + 1,
        lambda t: t.transpose(0, -1) * 2,
        lambda t: torch.cat([t, t], -1),
        lambda t: torch.add(t, t.transpose(1, 2), out=torch.empty_like(t)),
    ):
        expected, result = call(x), call(x.npu())
        assert result.shape == expected.shape and result.stride() == expected.stride()
        assert torch.equal(result.cpu(), expected)


@pytest.mark.libc_heap
def test_memory_of_plans_is_bounded(python):
    code = f"""
import sys, torch
sys.path.append({str(Path(heap.__file__).parent)!r})
from heap import in_use

a = torch.rand(40_000).npu()

def calls(first, last):
    for n in range(first, last):
        torch.add(a[:n], 1)
        torch.sum(a[:n])
        if n % 64 == 0:
            torch.npu.synchronize()  # queued tasks keep plans that were given up
    torch.npu.synchronize()

calls(1, 8_000)
before = in_use()
calls(8_000, 40_000)
print(in_use() - before)
"""
    assert int(python(code, TORCH_NPU_SANITIZER="0").stdout) < 16 << 20


SHAPES = [s for rank in range(4) for s in itertools.product((1, 2, 3), repeat=rank)]
SHAPES += [(0,), (2, 0), (0, 1)]
FEW = [(3, 2), (2,), (), (1, 2), (3, 1), (4, 3, 2)]


def filled(shape, dtype=torch.float32):
    numbers = torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape)
    return numbers.to(dtype)


@pytest.mark.parametrize(
    "call",
    [
        torch.add,
        torch.gt,
        lambda a, b: torch.true_divide(b, a),
        # A result in place is no larger than its tensor.
        lambda a, b: a.sub_(b),
        # One of another size than the given tensor resizes it.
        lambda a, b: torch.add(a, b, out=a.new_empty(12)[:0]),
    ],
    ids=["add", "gt", "div", "in place", "out"],
)
def test_expanded_arguments_give_what_they_give_on_cpu(call):
    for a, b in itertools.product(SHAPES, SHAPES):
        same(call, filled(a), filled(b))


def test_dtypes_of_results_follow_those_of_the_arguments():
    dtypes = (torch.uint8, torch.int64, torch.float16, torch.float64)
    for a, b in itertools.product(dtypes, dtypes):
        for shape in [(2, 3), (4, 1), (1, 5)]:
            same(torch.mul, filled(shape, a), filled((1,), b))


def test_three_arguments_and_numbers():
    for three in itertools.product(FEW, repeat=3):
        same(torch.addcmul, *map(filled, three))
    for shape in SHAPES:
        same(lambda x: (torch.clamp(x, 2, 3), x.long() ** 2), filled(shape))


def test_sizes_do_not_tell_how_arguments_with_gaps_lie():
    for n, m in itertools.product((1, 2, 3), repeat=2):
        same(torch.add, filled((n, m)), filled((n, m)))
        same(lambda x, y: x.t() + y, filled((n, m)), filled((m, n)))
        images = filled((2, 2, n, m))
        same(torch.neg, images)
        same(lambda x: x.contiguous(memory_format=torch.channels_last) * 2, images)
