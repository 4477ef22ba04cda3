"""Convolutions of 16 bits, against those of float32."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "1d": (lambda: nn.Conv1d(8, 12, 3, stride=2), (2, 8, 33)),
    "2d": (lambda: nn.Conv2d(8, 12, 3, padding=1), (2, 8, 12, 12)),
    "2d_no_bias": (lambda: nn.Conv2d(8, 12, 3, bias=False), (2, 8, 12, 12)),
    "2d_groups": (lambda: nn.Conv2d(8, 16, 3, groups=8, dilation=2), (2, 8, 12, 12)),
    "2d_one_image": (lambda: nn.Conv2d(8, 12, 3), (8, 12, 12)),
    "3d": (lambda: nn.Conv3d(4, 6, 2), (2, 4, 5, 6, 7)),
    "transposed": (
        lambda: nn.ConvTranspose2d(8, 12, 3, stride=2, output_padding=1),
        (2, 8, 9, 9),
    ),
}


def run(
    name: str, dtype: torch.dtype, last: bool, device: str, wanted: bool
) -> list[Tensor | None]:
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    layer = make().to(torch.float16).to(dtype).to(device)
    x = torch.randn(shape).to(torch.float16).to(dtype).to(device)
    if last and x.dim() == 4:
        x = x.contiguous(memory_format=torch.channels_last)
    x.requires_grad_(wanted)
    y = layer(x)
    (y * torch.linspace(-1, 2, y.shape[-1], device=device).to(dtype)).sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", LAYERS)
def test_convolutions(name, dtype, wanted, last):
    want = run(name, torch.float32, last, "cpu", wanted)
    got = run(name, dtype, last, "npu", wanted)

    for w, g in zip(want, got, strict=True):
        assert (w is None) == (g is None)
        if w is not None:
            assert g.dtype == dtype
            within = (4e-3 if dtype == torch.float16 else 3e-2) * w.abs().max().item()
            torch.testing.assert_close(g.float().cpu(), w, rtol=0, atol=within)


def test_a_replay_computes_the_same():
    layer = nn.Conv2d(4, 4, 3).half().npu()
    x = torch.randn(1, 4, 8, 8).half().npu()
    with torch.no_grad():
        want = layer(x).cpu()
        graph = torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            y = layer(x)
    y.zero_()
    graph.replay()
    assert torch.equal(y.cpu(), want)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_convolution_without_results_is_accepted_where_cpu_accepts_it(dtype):
    """float32's kernel refuses it, and so does float16's on some processors."""

    def evaluate(device: str) -> list[object]:
        x, weight = (
            torch.zeros(shape, dtype=dtype, device=device, requires_grad=True)
            for shape in ((1, 1, 4, 5, 1), (1, 1, 4, 3, 1))
        )
        y = F.conv_transpose3d(
            x, weight, stride=3, padding=(0, 0, 1), output_padding=(0, 0, 1)
        )
        y.sum().backward()
        return [y.shape, x.grad.cpu(), weight.grad.cpu()]

    try:
        wanted = evaluate("cpu")
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match="Output size is too small"):
            evaluate("npu")
        assert "Output size is too small" in str(error)
        return
    found = evaluate("npu")

    assert wanted[0] == found[0] == (1, 1, 13, 15, 0)
    torch.testing.assert_close(found[1:], wanted[1:])
