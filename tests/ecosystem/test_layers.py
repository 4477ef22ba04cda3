"""Recurrent, Transformer and normalisation layers, and what attention has beside."""

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

from npu_dispatch.observe.segment import StatsReader, segment_file
from tests.ecosystem.both import both, with_gradients

NEAR = {"rtol": 1e-4, "atol": 1e-5}
LSTM_NEAR = {"rtol": 1.3e-6, "atol": 1e-5}
X = torch.rand(5, 2, 3)


def both_modules(module, *arguments, call=lambda m, *a: m(*a), **tolerance):
    """Compare a module's outputs, and the gradients of parameters and arguments."""

    def run(*arguments):
        own = copy.deepcopy(module).to(arguments[0].device)
        results = pytree.tree_leaves(call(own, *arguments))
        loss = sum(r.pow(2).sum() for r in results if r is not None)
        wrt = [t for t in (*arguments, *own.parameters()) if t.requires_grad]
        return results, torch.autograd.grad(loss, wrt, allow_unused=True)

    both(run, *arguments, **(tolerance or NEAR))


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_recurrent(cell, options):
    both_modules(cell(3, 4, **options), X)


@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_packed(cell):
    def call(layer, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
        return nn.utils.rnn.pad_packed_sequence(layer(packed)[0])[0]

    both_modules(cell(3, 4), X, call=call)


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells(cell):
    both_modules(cell(3, 4), torch.rand(2, 3))


def lstm(*arguments, call=lambda m, x, *state: m(x, state or None), **options):
    """Compare nn.LSTM, whose kernel is cpu's own: a task per layer and direction."""
    given = [a.clone().requires_grad_() for a in arguments]
    both_modules(nn.LSTM(3, 4, **options), *given, call=call, **LSTM_NEAR)


def test_lstm():
    for bias, both_ways, first in itertools.product((True, False), repeat=3):
        options = {"bias": bias, "bidirectional": both_ways, "batch_first": first}
        lstm(X, num_layers=2, **options)
        lstm(X, call=lambda m, x: m.eval()(x), **options)
    lstm(X, torch.rand(2, 2, 4), torch.rand(2, 2, 4), num_layers=2)
    lstm(X, proj_size=2)
    lstm(X[:, 0])
    lstm(X.double(), call=lambda m, x: m.double()(x)[0])


def test_gradients_of_gradients_of_lstm():
    def first(module, x):
        loss = module(x)[0].square().sum()
        return torch.autograd.grad(loss, x, create_graph=True)

    lstm(X, call=first, num_layers=2)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_lstm_without_gradients_and_in_inference_mode(mode):
    module = nn.LSTM(3, 4, num_layers=2)

    def run(x):
        with mode():
            return copy.deepcopy(module).to(x.device)(x)[0]

    both(run, X, **LSTM_NEAR)


def test_a_step_of_lstm_waits_for_nothing_however_large_it_is():
    model = nn.LSTM(128, 256, batch_first=True).npu()
    x = torch.rand(16, 40, 128).npu()

    def step():
        model(x)[0].square().sum().backward()

    step()
    with torch.npu.sync_guard("error"):
        step()


def test_each_layer_and_direction_of_lstm_is_one_task():
    model = nn.LSTM(3, 4, num_layers=2, bidirectional=True).npu()

    def submitted():
        with StatsReader(segment_file()) as reader:
            return sum(s.submitted for s in reader.streams())

    def tasks(length):
        x = torch.rand(length, 2, 3).npu()
        with torch.no_grad():
            model(x)
            torch.npu.synchronize()
            before = submitted()
            model(x)
            return submitted() - before

    assert tasks(2) == tasks(30)


def test_dropout_between_layers_drops_what_it_should():
    model = nn.LSTM(3, 4, num_layers=2, dropout=0.5).npu()
    x = torch.rand(50, 8, 3).npu()

    torch.manual_seed(1)
    first = model(x)[0]
    other = model(x)[0]
    torch.manual_seed(1)
    again = model(x)[0]

    assert torch.equal(first, again) and not torch.equal(first, other)


def test_sizes_that_do_not_fit_are_refused():
    weights = [p.detach() for p in nn.LSTM(3, 4).npu().parameters()]
    state = [torch.zeros(1, 2, 4).npu()] * 2

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.lstm(X.npu()[..., :2], state, weights, True, 1, 0.0, True, False, False)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("shape", [(4,), (2, 5)])
def test_fused_cells_refuse_what_holds_no_gates(shape, cell):
    x = torch.ones(shape, device="npu")
    with pytest.raises(RuntimeError, match="gates side by side"):
        getattr(torch.ops.aten, f"_thnn_fused_{cell}_cell")(x, x, x)


@pytest.mark.parametrize("training", [True, False])
def test_transformer(training):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)

    both_modules(layer.train(training), torch.rand(2, 5, 8))
    both_modules(layer.train(training), torch.rand(2, 5, 8), mask)


LENGTHS = [[[4], [2]], [[3], [2]], [[4], [4]]]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "padding",
    [
        *(torch.arange(4) >= torch.tensor(lengths) for lengths in LENGTHS),
        torch.tensor([[False] * 4, [True, True, False, False]]),
    ],
    ids=["one full", "none full", "no padding", "on the left"],
)
def test_encoder_inference_fast_path_with_padding(padding):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()

    def run(x, padding):
        with torch.no_grad():
            own = copy.deepcopy(encoder).to(x.device)
            return own(x, src_key_padding_mask=padding)

    both(run, torch.rand(2, 4, 8), padding, **NEAR)


@pytest.mark.parametrize("backend", [SDPBackend.MATH, SDPBackend.FLASH_ATTENTION])
def test_attention_backends(backend):
    def run(q):
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    both(with_gradients(run), torch.rand(1, 2, 6, 8, requires_grad=True), **NEAR)


def test_attention_dropout_keeps_the_expected_share():
    q = torch.ones(1, 1, 64, 64).npu()

    torch.manual_seed(0)
    a = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)
    torch.manual_seed(0)
    b = F.scaled_dot_product_attention(q, q, q, dropout_p=0.5)

    assert torch.equal(a, b)
    assert abs(a.mean().item() - 1) < 0.1 and a.std().item() > 0.01


def test_batch_norm_that_updates_nothing():
    def run(x, weight, mean, variance):
        function = torch.ops.aten._batch_norm_no_update
        return function(x, weight, None, mean, variance, 0.1, 1e-5)

    both(run, torch.rand(3, 4), torch.rand(4), torch.rand(4), torch.rand(4))


def test_a_synchronized_batch_norm_refuses_what_has_no_channels():
    x = torch.ones(4, device="npu")
    with pytest.raises(RuntimeError, match="dimension of channels"):
        torch.batch_norm_elemt(x, None, None, x, x, 1e-5)


EPS, MOMENTUM = 1e-3, 0.2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4), (6, 3, 2, 4)])
def test_the_steps_of_sync_batch_norm_on_parts_are_batch_norm_of_the_whole(
    shape, dtype
):
    torch.manual_seed(0)
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    near = {"rtol": 1e-2, "atol": 1e-2} if dtype == torch.float16 else {}
    x, grad = (torch.randn(shape).to(dtype) for _ in range(2))
    weight, bias, var = (torch.rand(3, dtype=wide) for _ in range(3))
    mean = torch.randn(3, dtype=wide)
    held = [t.clone() for t in (mean, var)]
    whole = [t.clone().requires_grad_() for t in (x.to(wide), weight, bias)]
    y = F.batch_norm(whole[0], *held, *whole[1:], True, MOMENTUM, EPS)
    wanted = torch.autograd.grad(y, whole, grad.to(wide))

    weight, bias, mean, var = (t.npu() for t in (weight, bias, mean, var))
    parts, grads = ([p.npu() for p in t.split([4, 2])] for t in (x, grad))
    counts = torch.tensor([float(p.numel() // 3) for p in parts]).npu()
    means, invstds = zip(*(torch.batch_norm_stats(p, EPS) for p in parts), strict=True)
    stats = torch.batch_norm_gather_stats_with_counts(
        *(parts[0], torch.stack(means), torch.stack(invstds), mean, var),
        *(MOMENTUM, EPS, counts.to(wide)),
    )
    outs = [torch.batch_norm_elemt(p, weight, bias, *stats, EPS) for p in parts]
    pairs = list(zip(grads, parts, strict=True))
    reduce = torch.batch_norm_backward_reduce
    sums = [reduce(*pair, *stats, weight, True, True, True) for pair in pairs]
    dy, dy_xmu, *of_layer = (sum(s) for s in zip(*sums, strict=True))
    inputs = [
        torch.batch_norm_backward_elemt(*pair, *stats, weight, dy, dy_xmu, counts.int())
        for pair in pairs
    ]

    got = [torch.cat(outs), torch.cat(inputs), *of_layer, mean, var]
    assert got[0].dtype == dtype
    for ours, expected in zip(got, [y.detach(), *wanted, *held], strict=True):
        torch.testing.assert_close(ours.cpu(), expected.to(ours.dtype), **near)
