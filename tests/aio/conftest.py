"""Both event loops, and a gate that holds a stream until the test opens it."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import uvloop

from npu_dispatch import _C

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], Any]]:
    """Each coroutine that is a test runs on both."""
    return LOOPS


@pytest.fixture(params=sorted(LOOPS))
def new_loop(request: pytest.FixtureRequest) -> Callable[[], Any]:
    return LOOPS[request.param]


class Gate:
    """Holds streams at a task that waits for a number of the gate's own stream."""

    def __init__(self) -> None:
        self._stream = torch.npu.Stream(priority=-1)
        self._key = self._stream.device_index, self._stream.stream_id
        self._number = _C.stream_tail(*self._key) + 1
        self.is_open = False

    def close(self, stream: torch.npu.Stream) -> None:
        """Hold what the stream is given from here on."""
        key = stream.device_index, stream.stream_id
        _C.stream_wait(*key, *self._key, self._number)

    def open(self) -> None:
        if not self.is_open:
            with torch.npu.stream(self._stream):
                _C.submit_nothing()
        self.is_open = True


@pytest.fixture
def new_gate() -> Iterator[Callable[[], Gate]]:
    gates = []

    def make() -> Gate:
        gates.append(Gate())
        return gates[-1]

    yield make
    for gate in gates:
        gate.open()


@pytest.fixture
def gate(new_gate: Callable[[], Gate]) -> Gate:
    return new_gate()


@pytest.fixture
def stream() -> torch.npu.Stream:
    return torch.npu.Stream()
