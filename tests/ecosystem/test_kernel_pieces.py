"""Kernels that are run in pieces, by whichever threads have a core."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.ecosystem.both import in_threads, numbers, same
from tests.graphs.captured import captured

# Large enough to be cut, with first dimensions that no piece divides.
SHAPES = [(400, 700), (3, 90001), (280003,), (2, 1, 350, 401), (1, 270, 1100)]


def check(call, *inputs, times=3):
    wanted = call(*inputs)
    on_device = [t.npu() for t in inputs]
    for _ in range(times):
        torch.testing.assert_close(
            call(*on_device), wanted, check_device=False, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_form_of_an_element_wise_call(shape):
    a, b = numbers(*shape), numbers(*shape, seed=1)
    row, one = numbers(shape[-1], seed=2), numbers(seed=3)

    check(lambda a, b: a + b, a, b)
    check(lambda a, row: a * row, a, row)
    check(lambda a, one: a - one, a, one)
    check(lambda a, b: (a > b, a.exp(), F.gelu(b), F.relu(a), b.sigmoid()), a, b)
    check(lambda a, b: a.clone().add_(b, alpha=2).mul_(b).relu_(), a, b)
    check(lambda a, b: torch.mul(a.double(), b), a, b)
    check(lambda a: torch.sqrt(a.abs()).pow(3), a)
    check(lambda a: torch.maximum(a.half(), a.half() * 2), a)
    check(lambda a, b: torch.add(a, b, out=torch.empty_like(a).mT.contiguous().mT)
          if a.dim() > 1 else a, a, b)  # fmt: skip


def test_tensors_that_lie_otherwise_in_memory():
    a, b = numbers(700, 900), numbers(900, 700, seed=1)

    check(lambda a, b: a + b.t(), a, b)
    check(lambda a, b: a[::2, 100:800].exp() * b[100:800, ::2].t(), a, b)
    check(lambda a: a[:, :1].expand(700, 900) + a[:1], a)
    check(lambda a: (a + 0j).conj() * 2, a)
    images = numbers(8, 32, 40, 40)
    check(lambda x: F.relu(x.to(memory_format=torch.channels_last)) + 1, images)


def test_a_part_of_a_tensor_is_all_that_is_written():
    a, b = numbers(900, 900).npu(), numbers(900, 500, seed=1).npu()
    before = a.clone()
    a[:, 200:700].mul_(b).exp_()

    assert torch.equal(a[:, :200], before[:, :200])
    assert torch.equal(a[:, 700:], before[:, 700:])
    torch.testing.assert_close(
        a[:, 200:700].cpu(), (before[:, 200:700] * b).exp().cpu()
    )


def test_lists_of_tensors():
    shapes = [(400, 784), (400,), (20, 400), (1,), (3, 5)]
    lists = [[numbers(*s, seed=k + i) for i, s in enumerate(shapes)] for k in (0, 9)]
    calls = [
        lambda a, b: torch._foreach_add(a, b, alpha=2),
        lambda a, b: torch._foreach_sqrt(torch._foreach_mul(a, a)),
        lambda a, b: torch._foreach_mul_([t.clone() for t in a], 3.0),
        lambda a, b: torch._foreach_lerp_([t.clone() for t in a], b, 0.1),
        lambda a, b: torch._foreach_addcdiv_(
            [t.clone() for t in a], b, torch._foreach_add(torch._foreach_mul(a, a), 1),
            [0.1 * i for i in range(len(a))],
        ),
        # One of each pair is broadcast, so that the lists are not cut alike.
        lambda a, b: torch._foreach_mul(a, [t[:1] for t in b]),
        lambda a, b: torch._foreach_add([a[0], b[1][0]], [b[0], a[1][0]]),
    ]  # fmt: skip

    for call in calls:
        wanted = call(*lists)
        for _ in range(2):
            found = call(*([t.npu() for t in tensors] for tensors in lists))
            torch.testing.assert_close(found, wanted, check_device=False)


def steps(name, options, parameters, device):
    own = [torch.nn.Parameter(p.clone().to(device)) for p in parameters]
    optimizer = getattr(torch.optim, name)(own, lr=0.01, fused=True, **options)
    for step in range(3):
        for i, p in enumerate(own):
            p.grad = torch.empty_like(p).copy_(numbers(*p.shape, seed=10 * step + i))
        optimizer.step()
    states = [optimizer.state[p] for p in own]
    return [p.detach().cpu() for p in own], states


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("AdamW", {}),
        ("AdamW", {"amsgrad": True, "maximize": True}),
        ("Adam", {"weight_decay": 0.1}),
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adagrad", {}),
    ],
)
@pytest.mark.parametrize("scalar", [False, True])
def test_a_fused_optimizers_step_has_cpus_bits(name, options, scalar):
    parameters = [
        numbers(300, 257),
        numbers(1000),
        numbers(64, 3, 7, 7).to(memory_format=torch.channels_last),
        numbers(70, 901).t(),
        numbers(1),
        numbers(10, 129),
        numbers(0),
        *([numbers()] if scalar else []),
    ]

    wanted, _ = steps(name, options, parameters, "cpu")
    found, states = steps(name, options, parameters, "npu")

    assert all(torch.equal(f, w) for f, w in zip(found, wanted, strict=True))
    counts = {int(state["step"]) for state in states if "step" in state}
    assert counts in (set(), {3})


def of_lstm(module, device, x):
    module = copy.deepcopy(module).to(device)
    x = x.to(device).detach().requires_grad_()
    for _ in range(2):  # the first call finds the sizes
        module.zero_grad()
        x.grad = None
        y, (h, c) = module(x)
        (y.square().sum() + 2 * h.sum() + c.sum()).backward()
    with torch.no_grad():
        alone = module(x)[0]
    found = [y, h, c, alone, x.grad, *(p.grad for p in module.parameters())]
    return [t.detach().cpu() for t in found]


# Batches that pieces divide, and do not.
@pytest.mark.parametrize(
    ("batch", "options"),
    [
        (16, {}),
        (17, {"num_layers": 2}),
        (9, {"bidirectional": True}),
        (16, {"bias": False}),
        (8, {"hidden_size": 256}),
    ],
)
def test_an_lstm_layer_is_divided_among_sequences(batch, options):
    module = nn.LSTM(128, **{"hidden_size": 128, **options})
    x = numbers(16, batch, 128)

    wanted, found = (of_lstm(module, device, x) for device in ("cpu", "npu"))

    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w, rtol=1e-5, atol=1e-5 * w.abs().max().item())
    again = of_lstm(module, "npu", x)
    assert all(torch.equal(a, f) for a, f in zip(again, found, strict=True))


def test_into_how_many_pieces_a_layer_is_divided(python):
    """The workspace for backward has a row for each piece."""
    python(
        """
import torch

def pieces(threads, batch, size):
    torch.set_num_threads(threads)
    h = torch.zeros(batch, size, device="npu")
    weights = [torch.ones(4 * size, size, device="npu")] * 2
    biases = [torch.ones(4 * size, device="npu")] * 2
    x = torch.ones(16, batch, size, device="npu")
    *_, workspace = torch.mkldnn_rnn_layer(
        x, *weights, *biases, h, h, False, [], 2, size, 1, True, False, False, True)
    return workspace.shape[0] if workspace.dim() == 2 else 1

assert pieces(2, 16, 128) == pieces(2, 17, 128) == 2
assert pieces(3, 16, 128) == 3
assert pieces(8, 13, 128) == 3  # of at least four sequences, on three cores
assert pieces(3, 7, 256) == 1  # few sequences
assert pieces(3, 8, 32) == 1  # a short kernel
assert pieces(1, 16, 128) == 1
""",
        NPU_DISPATCH_CORES="3",
    )


def test_gradients_of_a_divided_layer_need_not_be_computed_by_as_many_threads():
    module = nn.LSTM(128, 128).npu()
    x = numbers(16, 16, 128).npu()
    before = torch.get_num_threads()
    gradients = []
    try:
        for threads in (2, 1):
            torch.set_num_threads(2)
            module.zero_grad()
            loss = module(x)[0].sum()
            torch.set_num_threads(threads)
            loss.backward()
            gradients.append(module.weight_hh_l0.grad.cpu())
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*gradients)


@pytest.mark.parametrize("shape", [(300, 400), (3, 200, 300), (2, 5, 300, 100)])
def test_rows_stay_whole(shape):
    x, weight = numbers(*shape), numbers(shape[-1], seed=1)
    for dim in range(-1, len(shape)):
        check(lambda x, d=dim: (x.softmax(d), x.log_softmax(d)), x)
        check(lambda x, d=dim: x.mT.softmax(d), x)
    check(lambda x, w: F.layer_norm(x, w.shape, w, w), x, weight)
    check(lambda x: torch.native_layer_norm(x, shape[1:], None, None, 1e-5), x)


def gradients(x, call):
    x = x.detach().requires_grad_()
    y = call(x)
    return y.detach(), *torch.autograd.grad(y.square().sum(), x)


def test_gradients_of_rows():
    x, weight = numbers(40, 60, 100), numbers(100, seed=1)
    check(lambda x: gradients(x, lambda x: x.softmax(-1)), x)
    check(lambda x: gradients(x, lambda x: x.log_softmax(1)), x)
    check(
        lambda x, w: gradients(x, lambda x: F.layer_norm(x, w.shape, w, w)), x, weight
    )


# Batch, heads, length, width; one more than a piece takes of the first two. In the
# last one a mask of queries and keys is as long as the batch.
@pytest.mark.parametrize(
    "shape",
    [(8, 4, 64, 16), (3, 4, 100, 16), (1, 8, 128, 32), (5, 3, 90, 8), (64, 2, 64, 8)],
    ids=str,
)
@pytest.mark.parametrize("masked", ["no", "causal", "mask", "mask of a batch"])
def test_attention(shape, masked):
    batch, _, length, _ = shape
    q, k, v = (numbers(*shape, seed=i) for i in range(3))
    mask = None
    if masked.startswith("mask"):
        alike = (length, length) if masked == "mask" else (batch, 1, length, length)
        mask = numbers(*alike, seed=4)

    def call(*qkv):
        own = [t.detach().requires_grad_() for t in qkv]
        there = None if mask is None else mask.to(own[0].device)
        causal = masked == "causal"
        y = F.scaled_dot_product_attention(*own, there, is_causal=causal)
        return y.detach(), *torch.autograd.grad(y.square().sum(), own)

    check(call, q, k, v)


def test_the_bits_are_the_same_whoever_helps():
    a, b = numbers(500, 700).npu(), numbers(500, 700, seed=1).npu()

    def call():
        rows = (a * b).softmax(-1)
        x = torch.addcmul(a, b, rows, value=0.3).exp()
        return [x, torch._foreach_lerp([a, b], [b, a], 0.3)[0], F.gelu(x), a @ b.mT]

    first = [t.cpu() for t in call()]
    results = [call() for _ in range(30)]  # while the program launches
    for _ in range(30):
        torch.npu.synchronize()  # while it waits
        results.append(call())
    streams = [torch.npu.Stream() for _ in range(3)]  # that want the same helpers
    for stream in streams * 10:
        stream.wait_stream(torch.npu.default_stream())
        with torch.npu.stream(stream):
            results.append(call())
    torch.npu.synchronize()
    graph, found = captured(call)
    results.append(found)
    graph.replay()
    for result in results:
        assert all(torch.equal(t.cpu(), f) for t, f in zip(result, first, strict=True))


def test_what_a_piece_raises_is_the_tasks_error():
    a = torch.arange(300_000, dtype=torch.int32).npu()
    b = torch.ones(300_000, dtype=torch.int32)
    b[-1] = 0
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.div(a, b.npu(), rounding_mode="floor").cpu()
    torch.npu.clear_error()
    assert torch.equal((a + 1).cpu(), a.cpu() + 1)


def test_a_thread_that_helped_has_its_own_state_again():
    a = numbers(600, 600).npu()
    wanted = (a @ a).exp().sum().item()
    done = []

    def wait():
        torch.set_num_threads(1 + len(done) % 2)
        threads = torch.get_num_threads()
        with torch.inference_mode(), torch.profiler.profile() as profile:
            values = [(a @ a).exp().sum().item() for _ in range(20)]
            assert torch.is_inference(torch.ones(1) * 2)
        assert torch.get_num_threads() == threads
        # The pieces are no calls of the program's.
        assert not any("narrow" in e.key for e in profile.key_averages())
        done.append((values[0], threads, len(set(values)) == 1))

    before = torch.get_num_threads()
    for _ in range(2):
        in_threads(wait)
    assert torch.get_num_threads() == before
    assert len(done) == 2
    assert all(same for _, _, same in done)
    assert done[0][0] == pytest.approx(wanted, rel=1e-5)


def test_a_limit_of_one_core_is_kept(python):
    code = """
import os, torch
a = torch.ones(1000, 1000).npu()
assert (a.exp() + a @ a).softmax(-1).sum().item()
tasks = "/proc/self/task"
names = {open(f"{tasks}/{task}/comm").read() for task in os.listdir(tasks)}
assert "npu-helper\\n" not in names, names
"""
    python(code, NPU_DISPATCH_CORES="1")


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: x.clone().bernoulli_(0.4),
        lambda x: x.clone().uniform_(),
        lambda x: x.clone().exponential_(),
        lambda x: torch.rand_like(x),
        lambda x: torch.bernoulli(x.sigmoid()),
        lambda x: torch.normal(x, 1.0),
        lambda x: F.rrelu(x, training=True),
    ],
)
def test_random_numbers_are_not_drawn_twice(draw):
    a = numbers(500, 600)
    torch.manual_seed(3)
    wanted = draw(a)
    torch.manual_seed(3)

    torch.testing.assert_close(draw(a.npu()).cpu(), wanted)


# Rows, what is summed over, columns; from 8 to 84 million multiplications.
SIZES = [(200,) * 3, (256,) * 3, (130, 784, 400), (63, 4096, 33), (31, 900, 3000)]


def matrix(rows, columns, turned, dtype):
    numbers = torch.arange(rows * columns).remainder(17).sub(8).to(dtype)
    return numbers.view(columns, rows).t() if turned else numbers.view(rows, columns)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("turned", [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_each_form_is_the_product(size, turned, dtype):
    # Of small integers, so that each order of additions gives the same.
    rows, between, columns = size
    a = matrix(rows, between, turned[0], dtype)
    b = matrix(between, columns, turned[1], dtype)
    row, full = matrix(1, columns, False, dtype), matrix(rows, columns, False, dtype)
    calls = [
        torch.mm,
        lambda a, b: torch.addmm(row.to(a.device), a, b, beta=2, alpha=-1),
        lambda a, b: torch.addmm(row[0].to(a.device), a, b),
        lambda a, b: torch.addmm(row[0, 0].to(a.device), a, b),
        lambda a, b: full.to(a.device).clone().addmm_(a, b, alpha=3),
        lambda a, b: torch.mm(a, b, out=full.to(a.device).t().contiguous().t()),
        lambda a, b: torch.mm(a, b, out=full.to(a.device)[:0]),
    ]

    for call in calls:
        assert torch.equal(call(a.npu(), b.npu()).cpu(), call(a, b))


@pytest.mark.parametrize("batch", [2, 3, 16])
def test_each_form_of_a_batch_is_the_products(batch):
    a = torch.stack([matrix(160, 160, k % 2 == 0, torch.float32) for k in range(batch)])
    c = a.mT.contiguous()
    calls = [
        torch.bmm,
        lambda a, b: torch.baddbmm(c.to(a.device), a, b, beta=0.5, alpha=2),
        lambda a, b: torch.baddbmm(c[0, 0].to(a.device), a, b),
        lambda a, b: c.to(a.device).clone().baddbmm_(a, b),
    ]

    for call in calls:
        assert torch.equal(call(a.npu(), a.npu()).cpu(), call(a, a))


def test_what_is_no_number_stays_where_it_is():
    a, b = torch.ones(300, 300), torch.ones(300, 300)
    a[7], b[:, 9] = torch.nan, torch.inf

    same(torch.mm, a, b)


def test_every_piece_flushes_denormal_numbers_if_the_caller_does(python):
    python("""
import torch
# cpu flushes in the caller's part of a product only, so it is no judge here. The
# bits are counted, since a comparison may flush, too.
a, b = torch.full((300, 300), 1e-39).npu(), torch.eye(300).npu()
count = lambda: (a @ b).view(torch.int32).count_nonzero()
assert count() == 300 * 300
if torch.set_flush_denormal(True):
    for _ in range(20):
        assert count() == 0
    torch.set_flush_denormal(False)
    assert count() == 300 * 300
""")
