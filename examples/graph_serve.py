"""Serve a small model one request at a time: eager launches against a replay.

Prints percentiles and a histogram of the latency of each, on the device and on
the cpu: from the request's arrival until its answer is on the host.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import click
import torch
from torch import Tensor, nn

BARS = 40


def make_model() -> nn.Module:
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Linear(32, 64), nn.GELU()]
    for _ in range(8):
        layers += [nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU()]
    return nn.Sequential(*layers, nn.Linear(64, 10), nn.Softmax(dim=-1)).eval()


def replayed(model: nn.Module) -> Callable[[Tensor], Tensor]:
    """Capture the model for one request; return a function that replays it."""
    static = torch.zeros(1, 32, device="npu")
    model(static)  # first calls look for kernels: not in a capture
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        answer = model(static)

    def serve(request: Tensor) -> Tensor:
        static.copy_(request)
        graph.replay()
        return answer

    return serve


def latencies(
    serve: Callable[[Tensor], Tensor], requests: list[Tensor], device: str
) -> tuple[list[float], Tensor]:
    """Microseconds per request, and the last answer."""
    times = []
    answer = torch.empty(0)
    for request in requests:
        began = time.perf_counter_ns()
        answer = serve(request.to(device)).cpu()
        times.append((time.perf_counter_ns() - began) / 1e3)
    return times, answer


def show(name: str, times: list[float], top: float) -> None:
    p50, p99 = statistics.median(times), statistics.quantiles(times, n=100)[98]
    print(f"\n{name}: median {p50:.0f} us, 99% below {p99:.0f} us")
    width = top / 12
    counts = [0] * 13
    for t in times:
        counts[min(12, int(t / width))] += 1
    for i, count in enumerate(counts):
        label = (
            f"{i * width:5.0f}-{(i + 1) * width:<5.0f}"
            if i < 12
            else f"{top:5.0f}-     "
        )
        print(f"  {label} us {'#' * round(BARS * count / max(counts))} {count}")


@click.command()
@click.option("--requests", default=2000, show_default=True)
@torch.no_grad()
def main(requests: int) -> None:
    """Compare three ways to serve the same requests."""
    given = [torch.rand(1, 32) for _ in range(requests)]
    on_cpu = make_model()
    on_npu = make_model().npu()
    ways = {
        "cpu, eager": (on_cpu, "cpu"),
        "npu, eager": (on_npu, "npu"),
        "npu, replay": (replayed(on_npu), "npu"),
    }
    results = {}
    for name, (serve, device) in ways.items():
        latencies(serve, given[:50], device)  # warm up
        results[name] = latencies(serve, given, device)
    expected = results["cpu, eager"][1]
    top = 1.5 * max(statistics.median(times) for times, _ in results.values())
    for name, (times, answer) in results.items():
        assert torch.allclose(answer, expected, atol=1e-6), name
        show(name, times, top)


if __name__ == "__main__":
    main()
