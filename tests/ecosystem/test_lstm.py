"""nn.LSTM: cpu's own kernel, a task per layer and direction."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from npu_dispatch.observe.segment import StatsReader, segment_file
from tests.ecosystem.both import both

X = torch.rand(5, 2, 3)


def outputs_and_gradients(module, device, *arguments):
    twin = nn.LSTM(**module.options).to(device).train(module.training)
    twin.load_state_dict(module.state_dict())
    x, *state = (t.detach().to(device).requires_grad_() for t in arguments)
    out, (h, c) = twin(x, tuple(state) if state else None)
    loss = out.square().sum() + h.sum() + 2 * c.sum()
    grads = torch.autograd.grad(loss, [x, *state, *twin.parameters()])
    return [t.detach().cpu() for t in (out, h, c, *grads)]


def lstm(train=True, **options):
    torch.manual_seed(0)
    module = nn.LSTM(3, 4, **options).train(train)
    module.options = {"input_size": 3, "hidden_size": 4, **options}
    return module


def compare(module, *arguments):
    expected = outputs_and_gradients(module, "cpu", *arguments)
    got = outputs_and_gradients(module, "npu", *arguments)
    for e, g in zip(expected, got, strict=True):
        torch.testing.assert_close(g, e)


def test_outputs_and_gradients_are_those_of_cpu():
    for bias, both_ways, first in itertools.product((True, False), repeat=3):
        options = {"bias": bias, "bidirectional": both_ways, "batch_first": first}
        compare(lstm(num_layers=2, **options), X)
        compare(lstm(train=False, **options), X)


def test_a_given_state_projections_and_a_single_sequence():
    compare(lstm(num_layers=2), X, torch.rand(2, 2, 4), torch.rand(2, 2, 4))
    compare(lstm(proj_size=2), X)
    compare(lstm(), X[:, 0])


def test_gradients_of_gradients():
    def second(device):
        module, x = lstm(num_layers=2).to(device), X.to(device).requires_grad_()
        (first,) = torch.autograd.grad(
            module(x)[0].square().sum(), x, create_graph=True
        )
        return torch.autograd.grad(first.square().sum(), x)[0].cpu()

    torch.testing.assert_close(second("npu"), second("cpu"))


def test_without_gradients_and_in_inference_mode():
    module = lstm(num_layers=2)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            expected, got = module(X)[0], module.to("npu")(X.npu())[0]
            module.cpu()
        torch.testing.assert_close(got.cpu(), expected)


def test_a_step_waits_for_nothing_however_large_it_is():
    model = nn.LSTM(128, 256, batch_first=True).npu()
    x = torch.rand(16, 40, 128).npu()

    def step():
        model(x)[0].square().sum().backward()

    step()
    torch.npu.set_sync_debug_mode("error")
    try:
        step()
    finally:
        torch.npu.set_sync_debug_mode("default")


def test_each_layer_and_direction_is_one_task():
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
    model = lstm(num_layers=2, dropout=0.5).npu()
    x = torch.rand(50, 8, 3).npu()

    torch.manual_seed(1)
    first = model(x)[0]
    other = model(x)[0]
    torch.manual_seed(1)
    again = model(x)[0]

    assert torch.equal(first, again) and not torch.equal(first, other)


def test_double_and_autocast():
    both(lambda x: nn.LSTM(3, 4).to(x)(x)[0], X.double())
    with torch.autocast("npu"):
        assert nn.LSTM(3, 4).npu()(X.npu())[0].dtype == torch.float16


def test_sizes_that_do_not_fit_are_refused():
    model = nn.LSTM(3, 4).npu()
    weights = [p.detach() for p in model.parameters()]
    state = [torch.zeros(1, 2, 4).npu()] * 2

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.lstm(X.npu()[..., :2], state, weights, True, 1, 0.0, True, False, False)
