"""A batching inference server on asyncio: one loop, no worker threads.

    python examples/serve_async.py serve --device npu --port 8000
    wrk -t1 -c64 -d5s --latency http://127.0.0.1:8000/7
    python examples/serve_async.py compare        # both devices, a table

The answer to GET /<user> is the class of that user's features. Requests that
come while the device computes form the next batch. On `npu` the loop launches a
batch on one of its streams and awaits the result, so that it reads requests,
and launches the next batch, meanwhile. On `cpu` the same model runs in the
loop's executor.
"""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import statistics
import subprocess
import sys
from collections.abc import Awaitable, Callable

import click
import torch
import uvloop
from torch import nn

from npu_dispatch import aio

FEATURES, CLASSES, USERS = 64, 10, 1024
Compute = Callable[[torch.Tensor, int], Awaitable[torch.Tensor]]


def model(width: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    parts: list[nn.Module] = [nn.Linear(FEATURES, width), nn.GELU()]
    for _ in range(layers):
        parts += [nn.LayerNorm(width), nn.Linear(width, width), nn.GELU()]
    return nn.Sequential(*parts, nn.Linear(width, CLASSES)).eval()


class Slot:
    """A stream with buffers of its own, and a graph of the model where there are
    graphs: a batch is then three tasks, whatever the model's size."""

    def __init__(self, net: nn.Module, most: int) -> None:
        self.stream = torch.npu.Stream()
        self.input = torch.zeros(most, FEATURES, pin_memory=True)
        self.output = torch.zeros(most, dtype=torch.long, pin_memory=True)
        self._on_device = self.input.npu()
        self._net = net
        self._graph = None
        torch.npu.synchronize()
        if not hasattr(torch.npu, "graph"):
            return
        graph = torch.npu.NPUGraph()
        with torch.inference_mode(), torch.npu.graph(graph, stream=self.stream):
            self._classes = net(self._on_device).argmax(-1)
        self._graph = graph

    def forward(self, n: int) -> torch.Tensor:
        """Launch the first `n` rows of the input; return where classes will be."""
        with torch.inference_mode():
            rows = slice(0, n)
            self._on_device[rows].copy_(self.input[rows], non_blocking=True)
            if self._graph is None:
                classes = self._net(self._on_device[rows]).argmax(-1)
            else:
                self._graph.replay()
                classes = self._classes[rows]
            return self.output[rows].copy_(classes, non_blocking=True)


def on_npu(net: nn.Module, slots: int, most: int) -> Compute:
    net = net.npu()
    buffers = [Slot(net, most) for _ in range(slots)]

    async def compute(features: torch.Tensor, slot: int) -> torch.Tensor:
        n, mine = len(features), buffers[slot]
        mine.input[:n] = features
        return await aio.run(mine.forward, n, stream=mine.stream)

    return compute


def on_cpu(net: nn.Module, slots: int, most: int) -> Compute:
    def forward(features: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return net(features).argmax(-1)

    async def compute(features: torch.Tensor, slot: int) -> torch.Tensor:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, forward, features)

    return compute


class Batcher:
    """Collects requests; at most `slots` batches are on their way at a time."""

    def __init__(self, compute: Compute, slots: int, most: int) -> None:
        self._compute = compute
        self._most = most
        self._users = torch.randn(USERS, FEATURES)
        self._queue: list[tuple[int, asyncio.Future[int]]] = []
        self._free = list(range(slots))
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, user: int) -> asyncio.Future[int]:
        """Return what will hold the class of a user."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[int] = loop.create_future()
        self._queue.append((user, future))
        # After this turn of the loop: what it has read is one batch.
        if self._free and len(self._queue) == 1:
            loop.call_soon(self._start)
        return future

    def _start(self) -> None:
        if not self._queue or not self._free:
            return
        batch, self._queue = self._queue[: self._most], self._queue[self._most :]
        task = asyncio.create_task(self._run(batch, self._free.pop()))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, batch: list[tuple[int, asyncio.Future[int]]], slot: int):
        features = self._users[[user for user, _ in batch]]
        try:
            classes = (await self._compute(features, slot)).tolist()
        except Exception as error:
            for _, future in batch:
                future.set_exception(error)
        else:
            for (_, future), number in zip(batch, classes, strict=True):
                future.set_result(number)
        finally:
            self._free.append(slot)
            self._start()


class Http(asyncio.Protocol):
    """As much of HTTP/1.1 as `wrk` and `curl` speak: GET, keep-alive."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._unread = b""

    def connection_made(self, transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        *requests, self._unread = (self._unread + data).split(b"\r\n\r\n")
        for request in requests:
            found = re.match(rb"GET /(\d*)", request)
            if found is None:
                self._send("400 Bad Request", b"GET /<user>\n")
                continue
            user = int(found[1] or 0) % USERS
            self._batcher.submit(user).add_done_callback(self._answer)

    def _answer(self, future: asyncio.Future[int]) -> None:
        if future.exception() is not None:
            self._send("500 Internal Server Error", b"%r\n" % future.exception())
        else:
            self._send("200 OK", b"%d\n" % future.result())

    def _send(self, status: str, body: bytes) -> None:
        if self._transport.is_closing():
            return
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)


async def serve_forever(batcher: Batcher, port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Http(batcher), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@click.group()
def main() -> None:
    pass


@main.command()
@click.option("--device", type=click.Choice(["npu", "cpu"]), default="npu")
@click.option("--port", default=0, help="0: a free one, which is printed.")
@click.option("--slots", default=2, show_default=True, help="Batches on their way.")
@click.option("--batch", default=64, show_default=True, help="Largest batch.")
@click.option("--width", default=128, show_default=True)
@click.option("--layers", default=8, show_default=True)
def serve(device: str, port: int, slots: int, batch: int, width: int, layers: int):
    """Serve until interrupted."""
    make = on_npu if device == "npu" else on_cpu
    batcher = Batcher(make(model(width, layers), slots, batch), slots, batch)
    uvloop.run(serve_forever(batcher, port))


def load(port: int, connections: int, seconds: int) -> dict[str, float]:
    """Run wrk once; milliseconds and requests per second."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--latency"]
    done = subprocess.run(
        [*command, f"http://127.0.0.1:{port}/7"],
        capture_output=True,
        text=True,
        check=True,
    )
    found = {}
    for percent, number, unit in re.findall(
        r"(50|75|90|99)%\s+([\d.]+)(us|ms|s)", done.stdout
    ):
        ms = float(number) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
        found[f"p{percent}_ms"] = ms
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert rate and "Non-2xx" not in done.stdout, done.stdout
    return {"requests_per_s": float(rate[1]), **found}


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--connections", default=64, show_default=True)
@click.option("--seconds", default=3, show_default=True, help="Of each run of wrk.")
@click.option("--rounds", default=5, show_default=True, help="Alternating.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def compare(connections: int, seconds: int, rounds: int, options: tuple[str, ...]):
    """Load both servers in turn; print medians. OPTIONS go to `serve`."""
    if shutil.which("wrk") is None:
        raise click.ClickException("needs wrk: apt-get install wrk")
    servers = {}
    for device in ("npu", "cpu"):
        servers[device] = subprocess.Popen(
            [sys.executable, __file__, "serve", "--device", device, *options],
            stdout=subprocess.PIPE,
            text=True,
        )
    try:
        ports = {device: int(s.stdout.readline()) for device, s in servers.items()}
        for port in ports.values():
            load(port, connections, 1)
        runs = {device: [] for device in ports}
        for _ in range(rounds):
            for device, port in ports.items():
                runs[device].append(load(port, connections, seconds))
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()
    middle = {
        device: {
            name: statistics.median(run[name] for run in found) for name in found[0]
        }
        for device, found in runs.items()
    }
    print(f"{'':>15}" + "".join(f"{device:>10}" for device in middle))
    for name in middle["npu"]:
        cells = "".join(f"{figures[name]:>10.2f}" for figures in middle.values())
        print(f"{name:>15}{cells}")
    rates = [middle[device]["requests_per_s"] for device in ("npu", "cpu")]
    print(json.dumps({"throughput_ratio": round(rates[0] / rates[1], 2)} | middle))


if __name__ == "__main__":
    main()
