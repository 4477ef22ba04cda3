"""Moving a module moves its Parameters: nobody who holds one is left behind."""

import copy

import pytest
import torch
from step_loop import plain_loop
from torch import nn

from tests.ecosystem.both import alike


class Tied(nn.Module):
    """A language model's head shares the weight of its embedding."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        return self.head(self.embedding(tokens))


TOKENS = torch.tensor([[1, 2, 3], [4, 5, 6]])


def losses(model, optimizer):
    """Train three steps to tell the tokens that are given."""

    def loss(answer, tokens):
        return nn.functional.cross_entropy(answer.flatten(0, 1), tokens.flatten())

    return plain_loop(model, optimizer, [(TOKENS, TOKENS)] * 3, loss_fn=loss)


MOVES = [
    lambda m: m.npu(),
    lambda m: m.to("npu"),
    lambda m: m.npu().half().float(),
    lambda m: m.npu().cpu().npu(),
    lambda m: m.to("npu", torch.float64),
    lambda m: m.to("npu", non_blocking=True),
    lambda m: m.to_empty(device="npu"),
    lambda m: m.to("npu").to("cpu"),
]


@pytest.mark.parametrize("move", MOVES)
def test_parameters_stay_the_same_objects(move):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LSTM(4, 2))
    before = list(model.parameters())

    move(model)

    after = list(model.parameters())
    assert all(a is b for a, b in zip(before, after, strict=True))
    assert {p.device for p in after} == {b.device for b in model.buffers()}


@pytest.mark.parametrize("move", MOVES[:4])
def test_a_lazy_module_moves_before_it_knows_its_shapes(move):
    def make():
        torch.manual_seed(0)
        return nn.Sequential(
            nn.LazyConv2d(3, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2)
        )

    x = torch.randn(2, 1, 5, 5)
    model = move(make())
    before = list(model.parameters())
    out = model(x.npu())
    expected = make()
    expected(x)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert {t.device.type for t in model.state_dict().values()} == {"npu"}
    # The first forward drew the values: on another device, from another generator.
    expected.load_state_dict(model.state_dict())
    torch.testing.assert_close(out.cpu(), expected(x))
    out.sum().backward()
    assert all(p.grad.device.type == "npu" for p in model.parameters())


def test_tied_weights_stay_tied():
    torch.manual_seed(0)
    model = Tied()

    def trained(device):
        own = copy.deepcopy(model).to(device)
        assert own.head.weight is own.embedding.weight
        assert len(list(own.parameters())) == 1
        optimizer = torch.optim.SGD(own.parameters(), lr=0.5)
        return torch.tensor(losses(own, optimizer))

    alike(trained)


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
def test_an_optimizer_made_before_the_move_trains_the_moved_parameters(kind):
    torch.manual_seed(0)
    model = Tied()

    def trained(device):
        own = copy.deepcopy(model)
        optimizer = kind(own.parameters(), lr=0.1)
        own.to(device)
        losses(own, optimizer)
        assert not torch.equal(own.head.weight.cpu(), model.head.weight)
        return own.head.weight.detach()

    alike(trained)


def test_gradients_move_with_their_parameters():
    layer = nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    expected = layer.weight.grad.clone()
    held = layer.weight.grad

    layer.to("npu")

    assert layer.weight.grad is held
    assert held.device.type == "npu"
    assert torch.equal(held.cpu(), expected)
    layer(torch.ones(1, 3, device="npu")).sum().backward()
    assert torch.equal(layer.weight.grad.cpu(), 2 * expected)


def test_data_can_be_exchanged_for_memory_of_the_other_device():
    p = nn.Parameter(torch.arange(6.0).reshape(2, 3))
    view = p.data

    p.data = p.data.npu()

    assert p.device.type == "npu"
    assert p.requires_grad
    assert p.is_leaf
    p.pow(2).sum().backward()
    assert torch.equal(p.grad.cpu(), 2 * view)
    p.grad = None
    p.data = p.data.cpu()
    assert p.device.type == "cpu"
    assert torch.equal(p, view)


def test_data_of_another_kind_is_refused():
    p = nn.Parameter(torch.ones(2, 2).npu())

    for other in (torch.ones(2, 2).to_sparse().npu(), torch.ones(2, 2, device="meta")):
        with pytest.raises(RuntimeError, match="incompatible tensor type"):
            p.data = other


def test_a_hook_of_a_parameter_outlives_the_move():
    layer = nn.Linear(2, 1, bias=False)
    seen = []
    layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad))

    layer.to("npu")(torch.ones(1, 2, device="npu")).sum().backward()

    assert [g.device.type for g in seen] == ["npu"]


@pytest.fixture
def conversion(request):
    """Set one of torch.__future__'s switches while a test runs."""
    name = request.param
    change = getattr(torch.__future__, f"set_{name}_module_params_on_conversion")
    change(True)
    yield name
    change(False)


@pytest.mark.parametrize("conversion", ["swap", "overwrite"], indirect=True)
def test_the_switches_of_torch_mean_what_they_say(conversion):
    layer = nn.Linear(2, 2)
    expected = layer.weight.detach().clone()
    held = layer.weight

    layer.to("npu")

    assert (layer.weight is held) == (conversion == "swap")
    assert torch.equal(layer.weight.detach().cpu(), expected)
