"""The foreach operators with kernels of our own give the cpu kernels' bits."""

import pytest
import torch

from tests.ecosystem.both import same

# Some below and some above where torch's kernel takes over; one not contiguous.
SHAPES = [(), (), (1,), (7,), (2, 3), (60, 60)]
SCALARS = [3, 0.1, 2**60 + 1, 1e300, True, -1e-40, 0, 1.0]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64]


def tensors(dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = [(torch.rand(shape) * 9).to(dtype) for shape in SHAPES]
    return [*made, (torch.rand(4, 6) * 9).to(dtype).t()]


CALLS = {
    **{
        name: [
            lambda t, name=name, s=s: getattr(torch, f"_foreach_{name}")(t, s) or t
            for s in SCALARS
        ]
        for name in ("add_", "sub_", "mul_", "div_")
    },
    "pow": [
        lambda t, base=base: torch._foreach_pow(base, t)
        for base in (0.9, 0.999, 2, 0, 1, -1.5, 1e300)
    ],
    "sqrt": [torch._foreach_sqrt],
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_each_tensor_of_a_list_has_the_bits_of_cpu(name, dtype):
    for call in CALLS[name]:
        same(call, tensors(dtype))


def test_a_list_of_counters_to_a_power():
    counts = [torch.tensor(float(i)) for i in range(1, 400)]

    same(lambda counts: torch._foreach_pow(0.999, counts), counts)
