"""Clients of the service: too many requests, slow ones, and a probe of /livez.

    python bench/_clients.py PORT SECONDS [--rate N] [--slow N] [--fresh] [--probe PID]

Prints what it saw as a JSON line.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import time
from collections import Counter
from pathlib import Path

import click

CONNECTIONS = 64
MOST_UNSENT = 16 << 10  # of a connection: what its service has not taken
TICK = 0.01
PROBE_EVERY = 0.05
STATUS = re.compile(rb"HTTP/1\.1 (\d+)")


def request(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


class Asking(asyncio.Protocol):
    """A connection that counts the answers by status."""

    transport: asyncio.Transport

    def __init__(self, seen: Counter[str]) -> None:
        self.seen = seen

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.seen.update(status.decode() for status in STATUS.findall(data))


class Load:
    def __init__(self, port: int, rate: int, fresh: bool) -> None:
        self.port, self.rate, self.fresh = port, rate, fresh
        self.seen: Counter[str] = Counter()
        self.open: list[Asking] = []

    async def connect(self) -> Asking | None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            made = loop.create_connection(
                lambda: Asking(self.seen), "127.0.0.1", self.port
            )
            return (await made)[1]
        self.seen["no connection"] += 1
        return None

    async def run(self, seconds: float) -> None:
        """Offer so many requests a second, whatever becomes of them."""
        end, due, sent = time.monotonic() + seconds, time.monotonic(), 0
        while time.monotonic() < end:
            due += TICK
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if self.fresh:
                for asking in self.open:
                    asking.transport.abort()
                self.open.clear()
            live = [one for one in self.open if not one.transport.is_closing()]
            missing = CONNECTIONS - len(live)
            more = await asyncio.gather(*(self.connect() for _ in range(missing)))
            self.open = live + [one for one in more if one]
            wanted = int(self.rate * TICK)
            for number in range(wanted if self.open else 0):
                transport = self.open[(sent + number) % len(self.open)].transport
                if transport.get_write_buffer_size() < MOST_UNSENT:
                    transport.write(request("/api/v1/snapshot"))
                    self.seen["sent"] += 1
                else:
                    self.seen["not taken"] += 1
            sent += wanted


async def slow(port: int, seconds: float, seen: Counter[str]) -> None:
    """Send a letter a second of a request, for as long as the service allows it."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        with contextlib.suppress(OSError, asyncio.TimeoutError):
            async with asyncio.timeout(left):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                seen["slow connections"] += 1
                for letter in request("/metrics"):
                    writer.write(bytes([letter]))
                    if await _waits(reader):
                        break
                writer.transport.abort()
        await asyncio.sleep(0.1)


async def _waits(reader: asyncio.StreamReader) -> bool:
    """Wait for a second; True where the service has closed the connection."""
    with contextlib.suppress(asyncio.TimeoutError):
        async with asyncio.timeout(1):
            return not await reader.read(1)
    return False


async def load(port: int, seconds: float, rate: int, slow_ones: int, fresh: bool):
    asking = Load(port, rate, fresh)
    tasks = [slow(port, seconds, asking.seen) for _ in range(slow_ones)]
    if rate:
        tasks.append(asking.run(seconds))
    await asyncio.gather(*tasks)
    return asking.seen


def processor_ms(pid: int) -> float:
    """Return the time that a process's first thread has had a CPU."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e6


def probed(port: int, seconds: float, pid: int) -> dict[str, object]:
    """Ask /livez on a new connection each time, as a supervisor does.

    `cpu_ms` is what the service itself worked while the probe waited. The rest of
    `ms` is the machine's: others had the cores.
    """
    times, works, wrong = [], [], Counter[str]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        worked, begun = processor_ms(pid), time.perf_counter()
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
                client.sendall(request("/livez"))
                said = client.recv(64)
        except OSError as error:
            said = repr(error).encode()
        times.append(1e3 * (time.perf_counter() - begun))
        works.append(processor_ms(pid) - worked)
        if not said.startswith(b"HTTP/1.1 200"):
            wrong[said[:40].decode(errors="replace")] += 1
        time.sleep(PROBE_EVERY)
    return {"ms": times, "cpu_ms": works, "wrong": wrong}


@click.command()
@click.argument("port", type=int)
@click.argument("seconds", type=float)
@click.option("--rate", default=0)
@click.option("--slow", "slow_ones", default=0)
@click.option("--fresh", is_flag=True, help="A new connection after each tick.")
@click.option("--probe", default=0, help="Ask /livez of this process instead.")
def main(
    port: int, seconds: float, rate: int, slow_ones: int, fresh: bool, probe: int
) -> None:
    if probe:
        print(json.dumps(probed(port, seconds, probe)))
        return
    os.nice(5)  # it is the service that is measured
    print(json.dumps(asyncio.run(load(port, seconds, rate, slow_ones, fresh))))


if __name__ == "__main__":
    main()
