"""Recurrent and Transformer layers, and what attention has beside its operator."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.ecosystem.both import both, with_gradients

NEAR = {"rtol": 1e-4, "atol": 1e-5}


def both_modules(module, *arguments, call=None, **tolerance):
    """Compare a module's outputs and the gradients of its parameters."""

    def run(*arguments):
        device = arguments[0].device
        own = copy.deepcopy(module).to(device)
        out = (call or (lambda m, *a: m(*a)))(own, *arguments)
        first = out[0] if isinstance(out, tuple) else out
        first.pow(2).sum().backward()
        return first, [p.grad for p in own.parameters() if p.grad is not None]

    both(run, *arguments, **(tolerance or NEAR))


@pytest.mark.parametrize("cell", [nn.RNN, nn.GRU])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True, "num_layers": 2}])
def test_recurrent(cell, options):
    both_modules(cell(3, 4, **options), torch.rand(5, 2, 3))


@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_packed(cell):
    def call(layer, x):
        packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3])
        return nn.utils.rnn.pad_packed_sequence(layer(packed)[0])

    both_modules(cell(3, 4), torch.rand(5, 2, 3), call=call)


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.LSTMCell, nn.GRUCell])
def test_recurrent_cells(cell):
    both_modules(cell(3, 4), torch.rand(2, 3))


@pytest.mark.parametrize("training", [True, False])
def test_transformer(training):
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(5)

    both_modules(layer.train(training), torch.rand(2, 5, 8))
    both_modules(
        layer.train(training), torch.rand(2, 5, 8), mask, call=lambda m, x, a: m(x, a)
    )


def test_transformer_decoder_and_whole():
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    both_modules(model, torch.rand(2, 4, 8), torch.rand(2, 3, 8))


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


@pytest.mark.parametrize("backend", ["MATH", "FLASH_ATTENTION"])
def test_attention_backends(backend):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def run(q):
        with sdpa_kernel(getattr(SDPBackend, backend)):
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
