"""Operators that torch lets read and write memory on the calling thread.

Whatever is queued comes first, and what they return is what cpu returns.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.ecosystem.both import numbers

aten = torch.ops.aten


def sobol(*parts: str) -> Any:
    def run(state: Tensor, quasi: Tensor, scramble: Tensor) -> Any:
        aten._sobol_engine_initialize_state_(state, 3)
        if "scramble" in parts:
            aten._sobol_engine_scramble_(state, scramble, 3)
        if "forward" in parts:
            aten._sobol_engine_ff_(quasi, 5, state, 3, 0)
        return state, quasi, aten._sobol_engine_draw(quasi, 4, state, 3, 0, None)

    state = torch.zeros(3, 30, dtype=torch.int64)
    lower = torch.tril(torch.ones(3, 30, 30, dtype=torch.int64))
    return run, (state, torch.ones(3, dtype=torch.int64), lower)


def grid_sampler(x: Tensor, grid: Tensor) -> Tensor:
    return aten._grid_sampler_2d_cpu_fallback(x, grid, 0, 0, False)


WEIGHT = numbers(4, 8)
GRID = numbers(2, 5, 6, 2).clamp(-1, 1)
IMAGE = numbers(2, 3, 7, 7)
CASES: dict[str, Any] = {
    "choose_qparams": (
        lambda x: torch.choose_qparams_optimized(x, 2, 200, 0.16, 8),
        (torch.tensor([5.0, -3.0]),),
    ),
    "saturate": (aten._saturate_weight_to_fp16, (WEIGHT * 1e5,)),
    "reshape": (aten._reshape_from_tensor, (WEIGHT, torch.tensor([2, 16]))),
    "rowwise_prune": (
        lambda weight, mask: aten._rowwise_prune(weight, mask, torch.int64),
        (WEIGHT, torch.tensor([True, False, True, True])),
    ),
    "grid": (grid_sampler, (IMAGE, GRID)),
    "grid_backward": (
        lambda *g: aten._grid_sampler_2d_cpu_fallback_backward(*g, 0, 0, False),
        (numbers(2, 3, 5, 6), IMAGE, GRID),
    ),
    "sobol": sobol(),
    "sobol_scrambled": sobol("scramble", "forward"),
    "quantize_weight": (aten.fbgemm_linear_quantize_weight, (WEIGHT,)),
    "range": (lambda out: torch.range(0, 6, 1.5, out=out), (torch.zeros(5),)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_it_sees_what_is_queued_and_returns_what_cpu_returns(case):
    function, arguments = CASES[case]
    want = function(*(a.clone() for a in arguments))
    copies = [a.npu() for a in arguments]
    given = [torch.zeros_like(a) for a in copies]
    busy = torch.eye(400, device="npu")
    for _ in range(20):
        busy = busy @ busy
    for tensor, copy in zip(given, copies, strict=True):
        tensor.copy_(copy)

    got = function(*given)

    torch.testing.assert_close(got, want, check_device=False)
    torch.testing.assert_close(busy.cpu(), torch.eye(400))


def test_a_gradient_goes_through_the_fallback_of_grid_sampler():
    def gradients(device: str) -> list[Tensor | None]:
        x, grid = (t.detach().to(device).requires_grad_() for t in (IMAGE, GRID))
        grid_sampler(x, grid).square().sum().backward()
        return [x.grad, grid.grad]

    torch.testing.assert_close(
        gradients("npu"), gradients("cpu"), check_device=False, rtol=1e-4, atol=1e-4
    )


PACKED = {
    "fbgemm_pack_gemm_matrix_fp16": lambda f, w: f(w),
    "fbgemm_pack_quantized_matrix": lambda f, w: f(w.to(torch.int8)),
    "fbgemm_linear_fp16_weight": lambda f, w: f(w, w.cpu(), w[0]),
    "fbgemm_linear_int8_weight": lambda f, w: f(w, w, w.cpu(), w[0], 1.0, 0, w[0]),
}


@pytest.mark.parametrize("name", PACKED)
def test_packed_weights_are_of_the_host(name):
    weight = torch.zeros(4, 8, device="npu")
    with pytest.raises(NotImplementedError, match="call it with tensors on cpu"):
        PACKED[name](getattr(aten, name), weight)
