"""What cpu refuses is refused at the call; what other accelerators have, by name."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.ecosystem.both import numbers

flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


class Make:
    """Zeros of a device, of a size that a test chooses."""

    def __init__(self, device: str) -> None:
        self.device = device

    def __call__(self, *shape: int) -> Tensor:
        return torch.zeros(shape, device=self.device)

    def ints(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int64, device=self.device)

    def mask(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.bool, device=self.device)


# Calls with zeros, made by the first argument, of a size; right where the last is 0.
CALLS: dict[str, Callable[[Make, int, int], object]] = {
    "linear": lambda t, n, d: F.linear(t(n, n), t(n, n), t(n + d)),
    "convolution": lambda t, n, d: F.conv2d(t(1, 4, n, n), t(6, 4, 3, 3), t(6 + d)),
    "grouped": lambda t, n, d: F.conv2d(t(1, 4, n, n), t(6 + d, 2, 3, 3), groups=2),
    "transposed": lambda t, n, d: F.conv_transpose2d(t(1, 4, n, n), t(4 + d, 6, 3, 3)),
    "put_rows": lambda t, n, d: t(n, n).index_put((t.ints(3),), t(3, n - d)),
    "put_masked": lambda t, n, d: t(n, n).index_put((t.mask(n + d),), t(1, n)),
    "put_columns": lambda t, n, d: t(2, n, n).__setitem__(
        (slice(None), t.ints(7)), t(2, 7 + d, n)
    ),
    "reduce_rows": lambda t, n, d: t(n, n).index_reduce(
        0, t.ints(3 + d), t(3, n), "amax"
    ),
    "put": lambda t, n, d: t(n, n).put(t.ints(4), t(4 + d)),
    "draws": lambda t, n, d: (t(4, n) + 1).multinomial(n + d),
    "reflectors": lambda t, n, d: torch.ormqr(  # a product of n matrices
        t(min(n, 260), min(n, 260)), t(min(n, 260) - d), t(min(n, 260), 3)
    ),
    "attention": lambda t, n, d: flash(*[t(1, 2, n, 8)] * 3, 0.5 * d),
    "scattered": lambda t, n, d: t(n, n).masked_scatter_(t.mask(n - d, n), t(n, n)),
    "normal": lambda t, n, d: torch.normal(t(n, n), 1.0, out=t(n, n - d)),
    "random_to": lambda t, n, d: t(n, n).byte().random_(256 + d),
    "random_range": lambda t, n, d: t(n, n).random_(5, 6 - d),
    "permutation": lambda t, n, d: torch.randperm(256 + d, out=t(256 + d).byte()),
}


def error_of(call: Callable[[], object]) -> tuple[type, str]:
    with pytest.raises((RuntimeError, IndexError)) as raised:
        call()
    return type(raised.value), str(raised.value).splitlines()[0]


@pytest.mark.parametrize("n", [12, 520])
@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_refused_as_on_cpu(name: str, n: int):
    call, npu = CALLS[name], Make("npu")
    on_cpu = error_of(lambda: call(Make("cpu"), n, 1))

    for _ in range(2):
        assert error_of(lambda: call(npu, n, 1)) == on_cpu
        call(npu, n, 0)
        torch.npu.synchronize()


@pytest.fixture
def alerting():
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t(600, 600).half().random_(0, 5000),
        lambda t: t(600).put_(t.ints(2), t(2)),
        lambda t: F.max_unpool2d(t(1, 1, 1, 1), t.ints(1).view(1, 1, 1, 1), 2),
    ],
    ids=["bounds", "put", "max_unpool"],
)
def test_a_kernel_warns_at_the_call_each_time(call, alerting):
    for _ in range(2):
        with pytest.warns(UserWarning, match="determinis|out of bounds") as warned:
            call(Make("npu"))
        assert len(warned) == 1


@pytest.fixture
def always():
    """Warnings of torch that come once for each process come each time."""
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(False)


@pytest.mark.parametrize(
    "call",
    [
        lambda a, out: torch.mm(a, a, out=out),
        lambda a, out: torch.linalg.inv(a, out=out),
        lambda a, out: torch.cholesky_inverse(a, out=out),
        lambda a, out: torch.linalg.householder_product(a, a[0], out=out),
        lambda a, out: torch.cat([a, a], out=out),
    ],
    ids=["mm", "inv", "cholesky_inverse", "householder_product", "cat"],
)
def test_a_result_that_is_resized_is_one_warning(call, always):
    a = torch.eye(3)
    on_cpu = torch.empty(0)
    call(a, on_cpu)
    for _ in range(2):
        out = torch.empty(5, device="npu")
        with pytest.warns(UserWarning, match="was resized") as warned:
            call(a.npu(), out)
            torch.npu.synchronize()
        assert len(warned) == 1
        assert torch.equal(out.cpu(), on_cpu)


def test_new_memory_of_complex_halves_is_a_warning(always):
    for call in (torch.empty, torch.zeros, torch.rand):
        with pytest.warns(UserWarning, match="ComplexHalf support"):
            call(3, dtype=torch.chalf, device="npu")


# Attention may draw numbers that a program would miss, so nobody tries it.
@pytest.mark.parametrize("name", [n for n in CALLS if n != "attention"])
def test_a_capture_refuses_a_wrong_call_in_cpus_words(name: str):
    on_cpu = error_of(lambda: CALLS[name](Make("cpu"), 12, 1))

    with torch.npu.graph(torch.npu.NPUGraph()):
        assert error_of(lambda: CALLS[name](Make("npu"), 12, 1)) == on_cpu


def test_a_matrix_that_fails_late_is_a_linalg_error():
    torch.linalg.eigh(torch.eye(6).npu())
    with pytest.raises(torch.linalg.LinAlgError, match="eigh"):
        try:
            torch.linalg.eigh(torch.full((6, 6), float("nan")).npu())
            torch.npu.synchronize()
        finally:
            torch.npu.clear_error()


FIRST_LARGE_CALLS = """
import torch, torch.nn.functional as F
made = lambda *shape: torch.ones(shape, device="npu")
ints = lambda *shape: torch.zeros(shape, dtype=torch.int64, device="npu")
big, images, rows = made(600, 600), made(8, 16, 64, 64), made(32, 128, 64)
torch.npu.synchronize()
torch.npu.set_sync_debug_mode("error")
F.conv2d(images, made(32, 16, 3, 3), made(32))
F.conv_transpose2d(images, made(16, 8, 3, 3))
F.batch_norm(images, made(16), made(16), training=True)
F.batch_norm(images[:1], made(16), made(16), training=True)
F.group_norm(images, 4)
F.layer_norm(rows, [64])
F.layer_norm(made(64, 2048), [2048], made(2048), made(2048))
F.embedding(ints(70000), made(1000, 64))
F.dropout(big)
F.pad(big, (1, 1)), F.pad(images, (1, 1, 1, 1), mode="reflect")
F.interpolate(images, size=(100, 100), mode="bilinear")
F.max_pool2d(images, 2), F.avg_pool2d(images, 2), F.adaptive_avg_pool2d(images, 1)
F.cross_entropy(big, ints(600)), F.nll_loss(images, ints(8, 64, 64))
F.unfold(images, 3), F.pixel_shuffle(images, 2)
F.grid_sample(images, made(8, 64, 64, 2), align_corners=False)
big.std(), big.std(1), big.max(), big.max(1), big.flip(0), big.roll(10, 0)
big.cumsum(0), big.tril()
big.sort(1), big.topk(50, 1), big.kthvalue(100, 1), big.median(1), big.cummax(1)
big.logcumsumexp(1), big.histc(100), torch.fft.irfft(big), big.renorm(2, 0, 1.0)
big[ints(500)], big.index_put((ints(500),), made(500, 600))
big.scatter(1, ints(600, 600), big), big.gather(1, ints(600, 600))
F.scaled_dot_product_attention(*[made(4, 8, 128, 32)] * 3)
torch.npu.set_sync_debug_mode("default")
torch.npu.synchronize()
print("none waited")
"""


# Of many different sizes, each only a little larger than another one.
CROWDED_SIZES = """
import resource, torch
x = torch.ones(20, 21, 22, 23, 24, device="npu", dtype=torch.float16)
grid = torch.zeros(20, 12, 11, 10, 3, device="npu", dtype=torch.float16)
torch.npu.synchronize()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
torch.grid_sampler_3d(x, grid, 0, 0, False)
torch.flip(x, [0])
torch.npu.synchronize()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_the_smaller_call_that_is_tried_is_smaller(fresh_python):
    grown_kb = int(fresh_python(CROWDED_SIZES).stdout)

    assert grown_kb < 64 * 1024  # The results have 10 MB, the tensors of the trial 1.


def test_the_first_large_call_of_a_kind_does_not_wait(fresh_python):
    assert fresh_python(FIRST_LARGE_CALLS).stdout.strip() == "none waited"


aten = torch.ops.aten


QUANTIZED: list[Callable[[], Any]] = [
    lambda: torch.quantize_per_tensor(numbers(4).npu(), 0.1, 0, torch.qint8),
    lambda: torch.quantize_per_tensor(numbers(4), 0.1, 0, torch.qint8).npu(),
    lambda: torch.quantize_per_tensor_dynamic(numbers(4).npu(), torch.qint8, False),
    lambda: torch._empty_affine_quantized(
        [2], device="npu", dtype=torch.qint8, scale=1.0, zero_point=0
    ),
    lambda: torch.quantize_per_channel(
        numbers(2, 4).npu(), torch.ones(2).npu(), torch.zeros(2).npu(), 0, torch.qint8
    ),
    lambda: torch.empty(2, dtype=torch.quint8, device="npu"),
    lambda: torch.zeros(2, dtype=torch.qint32, device="npu"),
    lambda: torch.empty_strided((2, 3), (1, 2), dtype=torch.qint8, device="npu"),
    lambda: numbers(4).npu().to(torch.qint8),
]


@pytest.mark.parametrize("call", QUANTIZED)
def test_there_are_no_quantized_tensors(call):
    with pytest.raises(NotImplementedError, match="npu, which has no quantized"):
        call()


def test_an_operator_without_a_cpu_kernel_says_so():
    q = numbers(1, 2, 4, 8).npu()
    for call in (
        lambda: aten._scaled_dot_product_flash_attention(q, q, q),
        lambda: aten._scaled_dot_product_efficient_attention(q, q, q, None, False),
        lambda: aten.matmul_backward(q, q, q, [True, True]),
    ):
        with pytest.raises(NotImplementedError, match=r"Could not run .* on npu: its"):
            call()
    torch.npu.synchronize()


@pytest.mark.parametrize(
    ("causal", "biased"), [(False, False), (True, False), (False, True)]
)
def test_the_fused_attention_of_other_devices(causal, biased):
    inputs = [numbers(2, 3, 5, 8, seed=i) for i in range(3)]
    bias = numbers(5, 5, seed=4) if biased else None

    def run(device: str) -> list[Tensor | None]:
        q, k, v = (t.detach().to(device).requires_grad_() for t in inputs)
        mask = None if bias is None else bias.to(device)
        if device == "cpu":
            out = F.scaled_dot_product_attention(q, k, v, mask, is_causal=causal)
        else:
            out = aten._scaled_dot_product_fused_attention_overrideable(
                q, k, v, mask, 0.0, causal
            )[0]
        out.square().sum().backward()
        return [out.detach(), q.grad, k.grad, v.grad]

    torch.testing.assert_close(
        run("npu"), run("cpu"), check_device=False, rtol=1e-4, atol=1e-5
    )


def test_a_lazy_clone_is_a_clone():
    x = numbers(4).npu().requires_grad_()
    y = torch._lazy_clone(x)
    y.sum().backward()
    with torch.no_grad():
        y += 1
    torch.testing.assert_close((y - x).cpu(), torch.ones(4))
    torch.testing.assert_close(x.grad.cpu(), torch.ones(4))


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
def test_an_output_is_resized_on_its_device():
    out = torch.zeros(2, device="npu")
    aten._resize_output_(out, [3, 4], torch.device("npu", 0))
    assert out.shape == (3, 4)
    with pytest.raises(RuntimeError, match="it is on npu:0, expected cpu"):
        aten._resize_output_(out, [2], torch.device("cpu"))
    assert out.shape == (3, 4)
