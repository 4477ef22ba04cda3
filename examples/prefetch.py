"""A pipeline of two streams: the next batch is on its way while one is computed.

    npu-dispatch run examples/prefetch.py
    npu-dispatch sanitize examples/prefetch.py --forget-event

The copies have a stream of their own. An event tells the computing stream that
its batch is there, and record_stream() tells the allocator that the batch is
used on a stream that did not make it. Without the event the result is right as
long as the copy happens to win: the second command finds that without waiting
for the day when it does not, names both lines, and ends with status 66.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import click
import torch
from torch import Tensor, nn


def batches(n: int, rows: int) -> Iterator[Tensor]:
    """Yield pinned batches; making one takes the host as long as a decoder would."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(n):
        yield torch.rand(rows, 256, generator=generator).sort(1)[0].pin_memory()


class Prefetcher:
    """Batches on the device, each sent while the one before is computed."""

    def __init__(self, source: Iterator[Tensor], *, forget_event: bool) -> None:
        self.source = source
        self.forget_event = forget_event
        self.stream = torch.npu.Stream()
        self.send()

    def send(self) -> None:
        host = next(self.source, None)
        self.next = None
        if host is not None:
            with torch.npu.stream(self.stream):
                self.next = host.to("npu", non_blocking=True)
                self.sent = self.stream.record_event()

    def __iter__(self) -> Iterator[Tensor]:
        while self.next is not None:
            batch, computing = self.next, torch.npu.current_stream()
            if not self.forget_event:
                computing.wait_event(self.sent)
            batch.record_stream(computing)
            yield batch
            self.send()


def one_after_another(source: Iterator[Tensor]) -> Iterator[Tensor]:
    for host in source:
        yield host.to("npu")
        torch.npu.synchronize()


def model() -> nn.Module:
    torch.manual_seed(0)
    wide = [nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256), nn.GELU()]
    return nn.Sequential(*wide, *wide, *wide).eval()


@torch.no_grad()
def total(net: nn.Module, source: Iterator[Tensor]) -> tuple[float, float]:
    """Return the sum of all answers and the seconds that they took."""
    began = time.perf_counter()
    found = torch.zeros((), device="npu")
    for batch in source:
        found += net(batch).sum()
    return found.item(), time.perf_counter() - began


@click.command()
@click.option("--n", "count", default=40, show_default=True, help="Batches.")
@click.option("--rows", default=256, show_default=True, help="Of a batch.")
@click.option("--forget-event", is_flag=True, help="Leave a race in.")
def main(count: int, rows: int, forget_event: bool) -> None:
    net = model().npu()
    total(net, one_after_another(batches(2, rows)))  # first calls look for kernels
    plain, plain_s = total(net, one_after_another(batches(count, rows)))
    prefetched = Prefetcher(batches(count, rows), forget_event=forget_event)
    ahead, ahead_s = total(net, iter(prefetched))
    print(f"one after another: {count / plain_s:6.1f} batches/s, sum {plain:.4f}")
    print(f"with prefetching:  {count / ahead_s:6.1f} batches/s, sum {ahead:.4f}")
    print("the same" if plain == ahead else "not the same")


if __name__ == "__main__":
    main()
