"""Segments written by hand, and trainers in processes of their own."""

from __future__ import annotations

import select
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from interpreter import Forked
from starlette.testclient import TestClient

from npu_dispatch.observe.segment.layout import LAYOUT_VERSION, OFFSETS
from npu_dispatch.observe.segment.system import process_start
from npu_dispatch.observe.serve.access import Limits
from npu_dispatch.observe.serve.app import ServiceConfig, create_app

Fields = dict[tuple[str, int], int]


@pytest.fixture
def write_segment(tmp_path: Path) -> Callable[..., Path]:
    """write_segment(pid, {("StreamBlock.retired", 0): 3}): by block and index."""
    folder = tmp_path / "segments"
    folder.mkdir()

    def write(
        pid: int,
        fields: Fields,
        *,
        streams: int = 1,
        devices: int = 1,
        start: int | None = None,
        namespace: int | None = None,
        rank: str = "",
        command: bytes = b"",
    ) -> Path:
        base = {
            "ProcessBlock": OFFSETS["Segment.process"],
            "DeviceBlock": OFFSETS["Segment.devices"],
            "StreamBlock": -(
                -(OFFSETS["Segment.devices"] + devices * OFFSETS["DeviceBlock.size"])
                // 64
            )
            * 64,
        }
        size = base["StreamBlock"] + streams * OFFSETS["StreamBlock.size"]
        data = bytearray(size)
        here = Path("/proc/self/ns/pid").stat().st_ino
        struct.pack_into(
            "<8s8I4Q16s16s",
            data,
            0,
            b"NPUSTATS",
            LAYOUT_VERSION,
            OFFSETS["Segment.devices"],
            OFFSETS["DeviceBlock.size"],
            devices,
            OFFSETS["StreamBlock.size"],
            streams,
            pid,
            0,
            process_start(pid) if start is None else start,
            0,
            0,
            here if namespace is None else namespace,
            rank.encode(),
            rank.encode(),
        )
        struct.pack_into("<512s", data, OFFSETS["SegmentHeader.command"], command)
        for index in range(streams):
            at = base["StreamBlock"] + index * OFFSETS["StreamBlock.size"]
            struct.pack_into("<IiqQ", data, at, 1, index % devices, index, 4096)
            struct.pack_into("<Q", data, at + OFFSETS["StreamBlock.tail"], 1)
            struct.pack_into("<Q", data, at + OFFSETS["StreamBlock.retired"], 1)
        for (name, index), value in fields.items():
            block = name.partition(".")[0]
            at = base[block] + index * OFFSETS.get(f"{block}.size", 0) + OFFSETS[name]
            struct.pack_into("<Q", data, at, value)
        path = folder / str(pid)
        path.write_bytes(data)
        return folder

    return write


@pytest.fixture
def client(write_segment, ghost) -> Callable[..., TestClient]:
    """client(fields, max_rate=1.0): of a service that knows one process, `ghost`."""

    def open_client(
        fields: Fields | None = None, *, streams: int = 1, **config: Any
    ) -> TestClient:
        folder = write_segment(ghost, fields or {}, streams=streams)
        app = create_app(ServiceConfig(directory=folder, **config))
        return TestClient(app, base_url="http://localhost", follow_redirects=False)

    return open_client


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """No time passes between requests, and nobody waits for a refusal."""
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("npu_dispatch.observe.serve.access.time", clock)
    monkeypatch.setattr(Limits, "LATE_SECONDS", 0.0)


@pytest.fixture
def moved_segment(write_segment: Callable[..., Path]) -> Callable[[int], Path]:
    """moved_segment(pid): each of the segment's words has counted something."""
    blocks = ("ProcessBlock", "DeviceBlock", "StreamBlock")
    fields = {
        (name, 0): 1
        for name in OFFSETS
        if name.partition(".")[0] in blocks and not name.endswith(".size")
    }
    for name in ("device", "stream_id", "capacity", "thread", "held_by"):
        del fields[f"StreamBlock.{name}", 0]
    fields["StreamBlock.state", 0] = 2  # failed
    fields["StreamBlock.tail", 0] = 2
    return lambda pid: write_segment(pid, fields)


class Trainer:
    """A program that runs until told otherwise; its prints are its events."""

    def __init__(self, python: Forked, code: str, env: dict[str, str]) -> None:
        self.process = python.start(
            *("-c", code),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,  # nothing is held back from select()
            text=False,
            env=env,
        )
        self.pid = self.process.pid

    def line(self, timeout: float = 120) -> str:
        """Return the next line that it prints."""
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], timeout)
        assert ready, "the trainer said nothing"
        return self.process.stdout.readline().decode().strip()

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n".encode())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream:
                stream.close()


@pytest.fixture
def trainer(
    child_environment: Callable[..., dict[str, str]], python: Forked
) -> Iterator[Callable[..., Trainer]]:
    started: list[Trainer] = []

    def start(code: str, **env: str) -> Trainer:
        started.append(Trainer(python, code, child_environment(**env)))
        return started[-1]

    yield start

    for one in started:
        one.end()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    from browser import open_browser  # needs selenium

    opened = open_browser(1265, 900, dark=False)
    yield opened
    opened.quit()


@pytest.fixture
def browser(chromium: Any) -> Iterator[Any]:
    """It shows no page, on a light screen of 1265 by 900."""
    from browser import set_scheme, set_size

    set_size(chromium, 1265, 900)
    set_scheme(chromium, "light")
    chromium.get_log("browser")  # of the test before, whose service has ended
    yield chromium
    chromium.get("about:blank")  # its page asks for events no longer


@pytest.fixture
def ghost() -> Iterator[int]:
    """A process number whose process lives, and is not this one."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()
