"""resize_ and memory that nobody has written, against cpu."""

from __future__ import annotations

import pytest
import torch


@pytest.mark.parametrize("size", [(3, 2), (2, 3), (4, 5), (1,), ()])
@pytest.mark.parametrize("format", [None, torch.contiguous_format])
def test_resize_of_a_transposed_tensor(size, format):
    results = []
    for device in ("cpu", "npu"):
        t = torch.arange(6.0).reshape(2, 3).to(device).t()
        t.resize_(size) if format is None else t.resize_(size, memory_format=format)
        results.append(t)
    kept = min(6, results[0].numel())
    assert results[1].stride() == results[0].stride()
    expected, got = (t.cpu().flatten()[:kept] for t in results)
    assert torch.equal(got, expected)


def test_resize_to_channels_last():
    x = torch.rand(2, 3, 4, 5).npu()
    x.resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert x.is_contiguous(memory_format=torch.channels_last)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


MADE = {
    "empty": lambda d, t: torch.empty(5, dtype=t, device=d),
    "empty_strided": lambda d, t: torch.empty_strided(
        (2, 3), (1, 2), dtype=t, device=d
    ),
    "empty_like": lambda d, t: torch.empty_like(torch.zeros(2, 3, dtype=t, device=d)),
    "new_empty": lambda d, t: torch.zeros(2, dtype=t, device=d).new_empty(4),
    "resize_": lambda d, t: torch.zeros(2, dtype=t, device=d).resize_(9),
    "resize_ of a part": lambda d, t: torch.zeros(8, dtype=t, device=d)[2:4].resize_(9),
}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.int64, torch.bool, torch.complex64]
)
@pytest.mark.parametrize("name", MADE)
@pytest.mark.usefixtures("deterministic")
def test_unwritten_memory_is_filled_where_the_process_asks_for_it(name, dtype):
    expected, got = MADE[name]("cpu", dtype), MADE[name]("npu", dtype)
    torch.testing.assert_close(got.cpu(), expected, equal_nan=True, rtol=0, atol=0)


@pytest.mark.usefixtures("deterministic")
def test_the_fill_can_be_switched_off():
    torch.npu.synchronize()
    torch.utils.deterministic.fill_uninitialized_memory = False
    try:
        before = torch.full((64,), 3.0, device="npu")
        del before
        assert not torch.empty(64, device="npu").isnan().all()
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
