"""A batching inference server on asyncio: one loop, no worker threads.

    python examples/serve_async.py serve --device npu --port 8000
    wrk -t1 -c64 -d5s --latency http://127.0.0.1:8000/7
    python examples/serve_async.py compare        # both devices, each two ways

The answer to GET /<user> is the class of that user. Requests that come while the
device computes form the next batch. The model is what costs launches rather than
arithmetic: residual blocks of small width, as recommenders and networks for
tables of features have them, five operators each.

On `npu` a batch is three calls of the loop's thread, whatever the model's size:
numbers into pinned memory, one replay of a graph captured for batches of about
this size, one await. On `cpu` the same model runs in an executor of the loop, by
default of one thread, because more of them only wait for each other's GIL.
"""

from __future__ import annotations

import asyncio
import gc
import json
import re
import shutil
import statistics
import subprocess
import sys
from array import array
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor

import click
import torch
import uvloop
from torch import Tensor, nn

CLASSES, USERS = 10, 1024
ANSWERS = [
    b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n%d\n" % c for c in range(CLASSES)
]
# The classes of some users, by the number of a free slot.
Compute = Callable[[list[int], int], Awaitable[list[int]]]


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(nn.functional.gelu(self.up(self.norm(x))))


class Classifier(nn.Module):
    """User numbers (n) to classes (n), both int64."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.users = nn.Embedding(USERS, width)
        self.blocks = nn.Sequential(*(Block(width) for _ in range(layers)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, users: Tensor) -> Tensor:
        return self.head(self.blocks(self.users(users))).argmax(-1)


def model(width: int, layers: int) -> nn.Module:
    torch.manual_seed(0)
    return Classifier(width, layers).eval()


class Slot:
    """Pinned buffers, between which the model runs: copy in, the model, copy out.
    With `graphs`, captured for each size of batch."""

    def __init__(
        self, net: nn.Module, most: int, stream: torch.npu.Stream, *, graphs: bool
    ) -> None:
        self.stream = stream
        # The graphs read and write their memory.
        self._net = net
        self._in = torch.zeros(most, dtype=torch.long, pin_memory=True)
        self._out = torch.zeros(most, dtype=torch.long, pin_memory=True)
        # The same memory, without a tensor per request.
        self._users = memoryview(self._in.numpy()).cast("B").cast("q")
        self._classes = memoryview(self._out.numpy()).cast("B").cast("q")
        self._graphs = []
        for size in batch_sizes(most) if graphs else []:
            graph = torch.npu.NPUGraph()
            self._launch(size)  # first calls are not to be captured
            torch.npu.synchronize()
            with torch.npu.graph(graph, stream=self.stream):
                self._launch(size)
            self._graphs.append(graph)

    def _launch(self, size: int) -> None:
        with torch.inference_mode():
            on_device = self._in[:size].to("npu", non_blocking=True)
            self._out[:size].copy_(self._net(on_device), non_blocking=True)

    async def compute(self, users: list[int]) -> list[int]:
        n = len(users)
        self._users[:n] = array("q", users)
        with torch.npu.stream(self.stream):
            if self._graphs:
                # The smallest size that holds them; what is too much is computed
                # again.
                self._graphs[(n - 1).bit_length()].replay()
            else:
                self._launch(n)
        await self.stream
        return self._classes[:n].tolist()


def batch_sizes(most: int) -> list[int]:
    """1, 2, 4 and so on, up to the first that holds `most`."""
    return [1 << i for i in range((most - 1).bit_length() + 1)]


def on_npu(net: nn.Module, slots: int, most: int, workers: int, how: str) -> Compute:
    net = net.npu()
    most = batch_sizes(most)[-1]
    torch.npu.synchronize()  # the weights are there: other streams read them
    streams = [torch.npu.Stream() for _ in range(workers)]
    made = [
        Slot(net, most, streams[i % workers], graphs=how == "graphs")
        for i in range(slots)
    ]

    def compute(users: list[int], slot: int) -> Awaitable[list[int]]:
        return made[slot].compute(users)

    return compute


def on_cpu(net: nn.Module, slots: int, most: int, workers: int, how: str) -> Compute:
    threads = ThreadPoolExecutor(workers)
    if how == "compiled":
        net = torch.compile(net, dynamic=True, options={"freezing": True})
        with torch.inference_mode():
            for size in batch_sizes(most):
                net(torch.zeros(size, dtype=torch.long))

    def forward(users: list[int]) -> list[int]:
        with torch.inference_mode():
            return net(torch.tensor(users)).tolist()

    def compute(users: list[int], slot: int) -> Awaitable[list[int]]:
        return asyncio.get_running_loop().run_in_executor(threads, forward, users)

    return compute


class Batcher:
    """Collects requests; at most `slots` batches are on their way at a time."""

    def __init__(self, compute: Compute, slots: int, most: int) -> None:
        self._compute = compute
        self._most = most
        self._queue: list[tuple[int, Http]] = []
        self._free = list(range(slots))
        self._running: set[asyncio.Task[None]] = set()

    def submit(self, user: int, client: Http) -> None:
        """Answer the client with the class of a user, later."""
        self._queue.append((user, client))
        # After this turn of the loop: what it has read is one batch.
        if self._free and len(self._queue) == 1:
            asyncio.get_running_loop().call_soon(self._start)

    def _start(self) -> None:
        if not self._queue or not self._free:
            return
        batch, self._queue = self._queue[: self._most], self._queue[self._most :]
        task = asyncio.create_task(self._run(batch, self._free.pop()))
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, batch: list[tuple[int, Http]], slot: int) -> None:
        try:
            classes = await self._compute([user for user, _ in batch], slot)
        except Exception as error:
            for _, client in batch:
                client.fail("500 Internal Server Error", b"%r\n" % error)
        else:
            for (_, client), number in zip(batch, classes, strict=True):
                client.answer(ANSWERS[number])
        finally:
            self._free.append(slot)
            self._start()


class Http(asyncio.Protocol):
    """As much of HTTP/1.1 as `wrk` and `curl` speak: GET, keep-alive. The next
    request of a connection is read when the last one has been answered."""

    def __init__(self, batcher: Batcher) -> None:
        self._batcher = batcher
        self._unread = b""
        self._waiting = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if not self._waiting:
            self._next()

    def _next(self) -> None:
        request, end, rest = self._unread.partition(b"\r\n\r\n")
        if not end:
            return
        self._unread = rest
        self._waiting = True
        found = re.match(rb"GET /(\d*)", request)
        if found is None:
            self.fail("400 Bad Request", b"GET /<user>\n")
        else:
            self._batcher.submit(int(found[1] or 0) % USERS, self)

    def fail(self, status: str, body: bytes) -> None:
        head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.answer(head.encode() + body)

    def answer(self, response: bytes) -> None:
        self._waiting = False
        if not self._transport.is_closing():
            self._transport.write(response)
            if self._unread:
                self._next()


async def serve_forever(batcher: Batcher, port: int) -> None:
    loop = asyncio.get_running_loop()
    # A full collection would walk all of torch's objects, a tenth of a second.
    gc.collect()
    gc.freeze()
    server = await loop.create_server(lambda: Http(batcher), "127.0.0.1", port)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@click.group()
def main() -> None:
    pass


@main.command()
@click.option("--device", type=click.Choice(["npu", "cpu"]), default="npu")
@click.option(
    "--how",
    type=click.Choice(["graphs", "eager", "compiled"]),
    help="graphs and eager on npu, eager and compiled on cpu; the first by default.",
)
@click.option("--port", default=0, help="0: a free one, which is printed.")
@click.option("--slots", default=2, show_default=True, help="Batches on their way.")
@click.option("--batch", default=64, show_default=True, help="Largest batch.")
@click.option("--width", default=32, show_default=True)
@click.option("--layers", default=24, show_default=True, help="Residual blocks.")
@click.option(
    "--workers",
    default=1,
    show_default=True,
    help="Streams, or threads of the executor.",
)
@click.option("--threads", default=1, show_default=True, help="Of one operator.")
def serve(
    device: str,
    how: str | None,
    port: int,
    slots: int,
    batch: int,
    width: int,
    layers: int,
    workers: int,
    threads: int,
) -> None:
    """Serve until interrupted."""
    torch.set_num_threads(threads)
    ways = {"npu": ("graphs", "eager"), "cpu": ("eager", "compiled")}[device]
    how = how or ways[0]
    if how not in ways:
        raise click.BadParameter(f"{how} is not a way on {device}")
    make = on_npu if device == "npu" else on_cpu
    compute = make(model(width, layers), slots, batch, workers, how)
    batcher = Batcher(compute, slots, batch)
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


# name: device, how
SERVERS = {
    "npu_graphs": ("npu", "graphs"),
    "npu_eager": ("npu", "eager"),
    "cpu_eager": ("cpu", "eager"),
    "cpu_compiled": ("cpu", "compiled"),
}


def ratio(middle: dict[str, dict[str, float]], a: str, b: str, name: str) -> float:
    return round(middle[a][name] / middle[b][name], 2)


@main.command(context_settings={"ignore_unknown_options": True})
@click.option("--connections", default=64, show_default=True)
@click.option("--seconds", default=3, show_default=True, help="Of each run of wrk.")
@click.option("--rounds", default=5, show_default=True, help="Alternating.")
@click.option("--quick", is_flag=True, help="Three rounds of a second.")
@click.option("--smoke", is_flag=True, help="One round, which measures nothing.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def compare(
    connections: int,
    seconds: int,
    rounds: int,
    quick: bool,
    smoke: bool,
    options: tuple[str, ...],
) -> None:
    """Load all servers in turn; print medians. OPTIONS go to `serve`."""
    if shutil.which("wrk") is None:
        raise click.ClickException("needs wrk: apt-get install wrk")
    if quick or smoke:
        seconds, rounds = 1, 1 if smoke else 3
    if smoke:
        options = (*options, "--layers", "1")
    servers = {
        name: subprocess.Popen(
            [
                *(sys.executable, __file__, "serve"),
                *("--device", device, "--how", how, *options),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, (device, how) in SERVERS.items()
    }
    try:
        ports = {name: int(s.stdout.readline()) for name, s in servers.items()}
        for port in ports.values():
            load(port, connections, 1)
        runs = {name: [] for name in ports}
        for _ in range(rounds):
            for name, port in ports.items():
                runs[name].append(load(port, connections, seconds))
    finally:
        for server in servers.values():
            server.terminate()
            server.wait()
    middle = {
        name: {
            field: statistics.median(run[field] for run in found) for field in found[0]
        }
        for name, found in runs.items()
    }
    for name, figures in middle.items():
        print(json.dumps({"case": name} | figures))
    against = "cpu_eager"
    line = {"case": "graphs_against_eager"} | {
        "throughput_ratio": ratio(middle, "npu_graphs", against, "requests_per_s"),
        "p99_ratio": ratio(middle, "npu_graphs", against, "p99_ms"),
        "goals": {"throughput_ratio": [">=", 2.0], "p99_ratio": ["<=", 1.0]},
    }
    print(json.dumps(line))
    for a, b in (("npu_eager", against), ("npu_graphs", "cpu_compiled")):
        line = {
            "case": f"{a}_against_{b}",
            "throughput_ratio": ratio(middle, a, b, "requests_per_s"),
            "p99_ratio": ratio(middle, a, b, "p99_ms"),
        }
        print(json.dumps(line))


if __name__ == "__main__":
    main()
