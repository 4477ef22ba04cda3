"""Slow, silent and malformed clients of the service, beside one that asks /livez.

`python -m tests.torture.clients --seconds 20`; prints JSON: what was answered, how
soon, and the service's memory before and after.
"""

import asyncio
import contextlib
import os
import random
import signal
import sys
import time
from asyncio import StreamReader as Reader, StreamWriter as Writer
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.torture import part

Visit = Callable[[Reader, Writer], Awaitable[object]]
SILENT = 400
TOKEN = "torture-" + "t" * 24
HOSTS = (
    b"",
    b"Host:\r\n",
    b"Host: evil.example\r\n",
    b"Host: localhost\r\nHost: evil.example\r\n",
    b"Host: [::1\r\n",
    b"Host: " + b"a" * 9000 + b"\r\n",
    b"Host: \xff\xfe\r\n",
    b"Host: localhost:99999999\r\n",
)
TOKENS = (
    b"",
    b"Authorization: Bearer\r\n",
    b"Authorization: Bearer \xc3\xa9\xff\r\n",
    b"Authorization: Bearer " + b"x" * 4000 + b"\r\n",
    b"Authorization: Basic eDp5\r\n",
    b"Cookie: npu_dispatch_session=\xff\r\n",
    b"Cookie: =;;;=\r\n",
    b"Authorization: Bearer " + TOKEN.encode() + b"\r\n",
)
PATHS = (b"/", b"/metrics", b"/api/v1/snapshot", b"/api/v1/%ff", b"/../etc", b"//")
PATHS += (b"/?token=%00", b"/?token=" + TOKEN.encode(), b"/api/v1/admin/dump", b"*")


def _request(rng: random.Random) -> bytes:
    method = rng.choice((b"GET", b"GET", b"POST", b"HEAD", b"\x16\x03\x01", b"G T"))
    head = method + b" " + rng.choice(PATHS) + b" HTTP/1.1\r\n"
    return head + rng.choice(HOSTS) + rng.choice(TOKENS) + b"\r\n"


def rss(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Clients:
    def __init__(self, port: int, seed: int) -> None:
        self.port, self.rng = port, random.Random(seed)
        self.answers = {"malformed": 0, "slow": 0, "scrapes": 0, "livez": 0}
        self.livez_s: list[float] = []
        self.refused: list[str] = []
        self.end = 0.0

    async def livez(self) -> None:
        """Ask, as whoever restarts the service does, and time the answer."""
        while time.monotonic() < self.end:
            began = time.monotonic()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                line = await asyncio.wait_for(reader.readline(), 30)
                writer.close()
            except (OSError, TimeoutError) as error:
                line = repr(error).encode()
            self.livez_s.append(time.monotonic() - began)
            if line.startswith(b"HTTP/1.1 200"):
                self.answers["livez"] += 1
            else:
                self.refused.append(line.decode(errors="replace").strip())
            await asyncio.sleep(0.05)

    async def again(self, visit: Visit, pause: float = 0) -> None:
        """Connect until the end, and count the visits that are answered."""
        while time.monotonic() < self.end:
            with contextlib.suppress(OSError, TimeoutError):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                with contextlib.closing(writer):
                    if await visit(reader, writer):
                        self.answers[visit.__name__] += 1
            await asyncio.sleep(pause)

    async def scrapes(self, reader: Reader, writer: Writer) -> bool:
        ask = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer "
        writer.write(ask + TOKEN.encode() + b"\r\nConnection: close\r\n\r\n")
        text = await asyncio.wait_for(reader.read(), 30)
        return text.startswith(b"HTTP/1.1 200")

    async def slow(self, reader: Reader, writer: Writer) -> bytes:
        """Send a byte now and then, and read as slowly."""
        for byte in b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n":
            writer.write(bytes([byte]))
            await asyncio.sleep(self.rng.random() * 0.1)
            if time.monotonic() > self.end:
                break
        return await asyncio.wait_for(reader.read(16), 0.5)

    async def silent(self, reader: Reader, writer: Writer) -> None:
        """Say nothing or half a line, and stay."""
        writer.write(self.rng.choice((b"", b"GET /", b"GET / HTTP/1.1\r\nHo")))
        left = max(0.01, self.end - time.monotonic())
        await asyncio.wait_for(reader.read(), left)

    async def malformed(self, reader: Reader, writer: Writer) -> bytes:
        writer.write(_request(self.rng))
        answer = b""
        if self.rng.random() < 0.5:
            answer = await asyncio.wait_for(reader.read(64), 2)
        writer.transport.abort()
        return answer

    async def run(self, seconds: float, silent: int) -> None:
        self.end = time.monotonic() + seconds
        crowd = [self.livez(), self.again(self.scrapes, 0.02)]
        crowd += [self.again(self.slow) for _ in range(64)]
        crowd += [self.again(self.malformed, 0.01) for _ in range(8)]
        crowd += [self.again(self.silent, 0.05) for _ in range(silent)]
        await asyncio.gather(*crowd)


async def campaign(seconds: float, seed: int) -> dict[str, Any]:
    env = {**os.environ, "NPU_DISPATCH_SERVE_TOKEN": TOKEN}
    command = ("-m", "npu_dispatch", "serve", "--port", "0")
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, *command), env=env, stdout=asyncio.subprocess.PIPE
    )
    assert service.stdout is not None
    line = (await service.stdout.readline()).decode().strip()
    clients = Clients(int(line.rstrip("/").rpartition(":")[2]), seed)
    try:
        await clients.run(2, 0)
        warm = rss(service.pid)
        clients.livez_s.clear()
        clients.answers = dict.fromkeys(clients.answers, 0)
        await clients.run(seconds, SILENT)
        after = rss(service.pid)
        lived = service.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            service.send_signal(signal.SIGTERM)
        try:
            code = await asyncio.wait_for(service.wait(), 30)
        except TimeoutError:
            service.kill()
            code = None
    times = sorted(clients.livez_s)
    bad = [f"/livez: {text}" for text in sorted(set(clients.refused))]
    if not lived or code not in (0, -signal.SIGTERM):
        bad.append(f"the service ended with {code}")
    if after > 2 * warm:
        bad.append(f"memory grew from {warm} to {after} bytes")
    return {
        "seed": seed,
        **clients.answers,
        "silent_clients": SILENT,
        "livez_asked": len(times),
        "livez_median_ms": round(1e3 * times[len(times) // 2], 1),
        "livez_worst_ms": round(1e3 * times[-1], 1),
        "rss_mb": [round(warm / 1e6, 1), round(after / 1e6, 1)],
        "bad": bad,
    }


def main() -> None:
    part.main(
        __doc__,
        lambda asked: asyncio.run(campaign(asked.seconds, asked.seed)),
        seconds=20,
    )


if __name__ == "__main__":
    main()
