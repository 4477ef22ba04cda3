"""What torch offers other accelerators: it is there, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


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
