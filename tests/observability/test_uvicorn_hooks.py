"""What serve/server.py takes from uvicorn, which does not document it."""

from __future__ import annotations

import asyncio
import inspect
import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
import uvicorn
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from npu_dispatch.observe.serve.server import Connection

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_the_installed_version_is_one_of_those_that_were_tried():
    asked = tomllib.loads(PROJECT.read_text())["project"]["dependencies"]
    [found] = [word for word in asked if word.startswith("uvicorn")]
    least, below = re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", found).groups()

    minor = int(version("uvicorn").split(".")[1])

    assert int(least) <= minor < int(below)


# asyncio calls the first five; uvicorn calls the last two.
@pytest.mark.parametrize(
    "name",
    [
        *("connection_made", "connection_lost"),
        *("pause_writing", "resume_writing"),
        *("handle_events", "on_response_complete"),
    ],
)
def test_what_is_overridden_is_there_and_takes_the_same(name):
    ours, theirs = getattr(Connection, name), getattr(H11Protocol, name)

    assert name in vars(Connection)
    assert list(inspect.signature(ours).parameters) == list(
        inspect.signature(theirs).parameters
    )


def test_what_is_read_is_there():
    async def made() -> H11Protocol:
        config = uvicorn.Config(lambda *_: None, http=H11Protocol)
        config.load()
        state = uvicorn.Server(config).server_state
        return H11Protocol(config, state, {}, asyncio.get_running_loop())

    protocol = asyncio.run(made())

    assert protocol.connections == set()
    assert protocol.cycle is None
    assert {"loop", "scope", "transport", "flow"} <= vars(protocol).keys()
    assert "write_paused" in inspect.getsource(FlowControl.__init__)
    assert "response_complete" in inspect.getsource(RequestResponseCycle.__init__)
