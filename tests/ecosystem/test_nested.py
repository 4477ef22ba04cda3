"""Strided nested tensors on npu, against cpu. Jagged ones: test_layouts.py."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.ecosystem.both import outcome

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")


def pieces() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.rand(n, 4) for n in (2, 3, 1)]


def on(device: str, module: nn.Module) -> nn.Module:
    torch.manual_seed(1)
    for parameter in module.parameters():
        nn.init.uniform_(parameter)
    return module.to(device)


CASES = {
    "to_padded_tensor": lambda n: n.to_padded_tensor(0.5),
    "arithmetic": lambda n: n * 2 + n - n / 3,
    "neg": lambda n: -n,
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "softmax": lambda n: torch.softmax(n, -1),
    "sum": lambda n: n.sum(-1, keepdim=True),
    "matmul": lambda n: n @ n.transpose(1, 2),
    "bmm": lambda n: torch.bmm(n, n.transpose(1, 2)),
    "unbind": lambda n: n.unbind()[1],
    "select": lambda n: n.select(0, 1),
    "dropout": lambda n: F.dropout(n, 0.0, training=True),
    "clone": lambda n: n.clone(),
    "dtype": lambda n: n.to(torch.float64).to(torch.float32),
    "linear": lambda n: on(n.device.type, nn.Linear(4, 5))(n),
    "layer_norm": lambda n: on(n.device.type, nn.LayerNorm(4))(n),
}


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case: str):
    def run(device: str) -> list[torch.Tensor]:
        parts = [p.to(device).requires_grad_() for p in pieces()]
        out = CASES[case](torch.nested.as_nested_tensor(parts))
        if out.is_nested:
            out = out.to_padded_tensor(0.0)
        out.pow(2).sum().backward()
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parts]
        return [out.detach(), *gradients]

    for ours, expected in zip(run("npu"), run("cpu"), strict=True):
        assert ours.device.type == "npu"
        torch.testing.assert_close(ours.cpu(), expected)


def test_nested_tensors_are_made_moved_and_taken_apart():
    made = torch.nested.nested_tensor(pieces(), device="npu")
    moved = torch.nested.nested_tensor(pieces()).to("npu")

    for nested in (made, moved, made.clone(), moved.cpu().npu()):
        assert nested.is_nested
        assert nested.device.type == "npu"
        assert nested.size(0) == 3
        for ours, expected in zip(nested.unbind(), pieces(), strict=True):
            assert torch.equal(ours.cpu(), expected)
    assert "npu:0" in str(made)


def test_an_update_in_place_reaches_the_parts():
    nested = torch.nested.nested_tensor(pieces(), device="npu")

    nested.mul_(2)
    nested.unbind()[0].zero_()

    parts = [p.cpu() for p in nested.unbind()]
    assert not parts[0].any()
    assert torch.equal(parts[1], pieces()[1] * 2)


def test_a_layer_of_a_transformer_takes_them():
    def run(device: str) -> torch.Tensor:
        layer = on(device, nn.TransformerEncoderLayer(4, 2, 8, batch_first=True))
        nested = torch.nested.nested_tensor(pieces(), device=device)
        with torch.no_grad():
            return layer.eval()(nested).to_padded_tensor(0.0).cpu()

    torch.testing.assert_close(run("npu"), run("cpu"))


@pytest.mark.parametrize(
    "call",
    [
        lambda n: n.transpose(1, 2).to_padded_tensor(0.0),
        lambda n: n + torch.nested.nested_tensor(pieces()[:2], device=n.device),
        lambda n: n.size(1),
    ],
)
def test_wrong_calls_are_refused_as_on_cpu(call):
    expected, got = (
        outcome(call, torch.nested.nested_tensor(pieces(), device=device))
        for device in ("cpu", "npu")
    )
    assert got == expected and expected[0] is RuntimeError
