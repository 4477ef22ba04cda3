"""Moving a module moves its Parameters: nobody who holds one is left behind."""

import pytest
import torch
from torch import nn

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
