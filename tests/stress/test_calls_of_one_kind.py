"""Calls of one kind on several streams, and from several threads, at the same time."""

from __future__ import annotations

import threading

import pytest
import torch

CALLS = 10_000


def many(stream: torch.npu.Stream, factor: float) -> torch.Tensor:
    """Queue calls of which none has another's size; return what they add up to."""
    with torch.npu.stream(stream):
        x = torch.full((CALLS,), factor, dtype=torch.float64, device="npu")
        sums = torch.zeros((), dtype=torch.float64, device="npu")
        for size in range(1, CALLS):
            sums += torch.sum(x[:size])
    return sums


@pytest.mark.parametrize("own_threads", [False, True])
@pytest.mark.parametrize("own_streams", [False, True])
def test_each_call_has_its_own_sizes_and_numbers(own_streams, own_threads):
    made = [torch.npu.Stream() for _ in range(4)]
    streams = made if own_streams else made[:1] * 4
    found: dict[int, torch.Tensor] = {}

    def work(number: int) -> None:
        found[number] = many(streams[number], number + 1.0)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start() if own_threads else thread.run()
    for thread in threads if own_threads else []:
        thread.join()
    torch.npu.synchronize()

    ones = CALLS * (CALLS - 1) / 2
    # The sums are whole numbers that float64 holds.
    assert {n: t.item() for n, t in found.items()} == {
        n: (n + 1) * ones for n in range(4)
    }
