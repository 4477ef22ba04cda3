"""`npu-dispatch serve`: where its options come from, whom it answers, its limits."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from prometheus_server import serving
from starlette.testclient import TestClient

from npu_dispatch.service import server
from npu_dispatch.service.app import ServiceConfig, create_app
from npu_dispatch.service.command import serve


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[object, ...]]]:
    """What the service would be started with, instead of starting it."""
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(server, "run", lambda *given: calls.append(given))
    yield calls


def test_a_flag_comes_before_a_variable_before_the_file(started, tmp_path: Path):
    file = tmp_path / "serve.toml"
    file.write_text(
        "port = 1\ninterval = 2.0\nmax-clients = 3\nallow-host = ['a.example', 'b']\n"
    )
    done = CliRunner().invoke(
        serve,
        ["--config", str(file), "--port", "11"],
        env={
            "NPU_DISPATCH_SERVE_PORT": "21",
            "NPU_DISPATCH_SERVE_INTERVAL": "22",
        },
    )

    assert done.exit_code == 0, done.output
    [(config, host, port, unix)] = started
    assert (host, port, unix) == ("127.0.0.1", 11, None)
    assert (config.interval, config.max_clients) == (22.0, 3)
    assert config.hosts == ("127.0.0.1", "a.example", "b")
    assert config.admin_token is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("prot = 1", "unknown prot; expected some of"),
        ("port = 'x'", "'x' is not a valid integer"),
        ("port =", "Invalid value"),
        ("interval = 0", "0.0 is not in the range"),
    ],
)
def test_what_the_file_should_not_say_is_refused(started, tmp_path: Path, text, words):
    file = tmp_path / "serve.toml"
    file.write_text(text)

    done = CliRunner().invoke(serve, ["--config", str(file)])

    assert done.exit_code == 2
    assert words in " ".join(done.output.split())
    assert started == []


@pytest.mark.parametrize("name", ["a*b", "*b.example"])
def test_a_host_name_that_cannot_match_is_refused(started, name):
    done = CliRunner().invoke(serve, ["--allow-host", name])

    assert done.exit_code == 2
    assert "expected a name, *.NAME or *" in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("given", "asked", "status"),
    [
        ("127.0.0.1", "[::1]:9401", 200),
        ("fd00::1", "[fd00::1]:9401", 200),
        ("127.0.0.1", "[fd00::1]:9401", 400),
        ("*.example", "a.example:9401", 200),
        ("*.example", "example:9401", 400),
        ("*", "anything", 200),
    ],
)
def test_names_that_are_answered(tmp_path: Path, given, asked, status):
    app = create_app(ServiceConfig(hosts=(given,), directory=tmp_path))
    with TestClient(app, base_url="http://localhost") as client:
        answer = client.get("/livez", headers={"Host": asked})

    assert answer.status_code == status


@pytest.fixture
def running(child_environment) -> Iterator[tuple[str, int]]:
    """The address of a service that has place for one listener."""
    with serving(child_environment(NPU_AUTOLOAD="0"), "--max-clients=1") as (_, where):
        host, _, port = where.rpartition(":")
        yield host, int(port)


def test_more_listeners_than_allowed_are_sent_away(running):
    request = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(running) as first:
        first.sendall(request)
        assert first.recv(12) == b"HTTP/1.1 200"
        with socket.create_connection(running) as second:
            second.sendall(request)
            assert second.recv(12) == b"HTTP/1.1 503"


def test_a_request_without_end_is_refused(running):
    with socket.create_connection(running) as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (17 << 10))
        assert client.recv(12) == b"HTTP/1.1 400"
