"""Clients of the service that say nothing, or read nothing."""

from __future__ import annotations

import contextlib
import functools
import http.client
import json
import resource
import socket
from subprocess import PIPE

import pytest
from interpreter import Spawned

SILENT = 300
UNREAD, SILENT_BESIDE = 480, 80
FILES = 512


@contextlib.contextmanager
def served(fresh_python, *argv: str, **start):
    """Give the port of a service."""
    with fresh_python.start(*argv, stdout=PIPE, **start) as service:
        yield int(service.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        service.kill()


SERVE = ("-m", "npu_dispatch", "serve", "--port", "0")


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a service that several tests ask."""
    python = Spawned(tmp_path_factory.mktemp("served"))
    with served(python, *SERVE, "--max-rate", "1e9") as port:
        yield port


def ask(port: int, path: str) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode())
        return client.recv(64)


@pytest.mark.parametrize("said", [b"", b"GET /met"], ids=["nothing", "half a line"])
def test_silent_clients_keep_nobody_from_an_answer(port: int, said: bytes):
    with contextlib.ExitStack() as clients:
        for _ in range(SILENT):
            client = socket.create_connection(("127.0.0.1", port), timeout=60)
            clients.enter_context(client).sendall(said)

        for path in ("/livez", "/metrics"):
            assert ask(port, path).startswith(b"HTTP/1.1 200")


def test_a_client_may_ask_again_and_again(port: int):
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with contextlib.closing(client):
        client.connect()
        connection = client.sock
        for _ in range(3):
            client.request("GET", "/livez")
            with client.getresponse() as answer:
                assert answer.status == 200
                answer.read()
        assert client.sock is connection  # nobody closed it


@pytest.mark.parametrize(
    ("path", "rate"),
    [("/page/page.js", "1e9"), ("/metrics", "1e9"), ("/metrics", "1")],
    ids=["files", "scrapes", "refusals"],
)
def test_clients_that_never_read_keep_nobody_from_an_answer(
    fresh_python, path: str, rate: str
):
    request = b"GET %b HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode()
    few = functools.partial(resource.setrlimit, resource.RLIMIT_NOFILE, (FILES, FILES))
    with contextlib.ExitStack() as clients:
        service = served(fresh_python, *SERVE, "--max-rate", rate, preexec_fn=few)
        port = clients.enter_context(service)
        for number in range(UNREAD + SILENT_BESIDE):
            client = clients.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            client.connect(("127.0.0.1", port))
            if number < UNREAD:
                client.setblocking(False)
                with contextlib.suppress(BlockingIOError):
                    client.sendall(request * 30)

        assert ask(port, "/livez").startswith(b"HTTP/1.1 200")
        if rate != "1":
            assert ask(port, "/metrics").startswith(b"HTTP/1.1 200")


ONE_A_LONG_TIME = """
from npu_dispatch.observe.serve.app import ServiceConfig
from npu_dispatch.observe.serve.server import Connection
from npu_dispatch.observe.serve.server import run
Connection.MOST_READ = 1e-6
run(ServiceConfig(max_rate=1e-6), "127.0.0.1", 0)
"""


def test_requests_that_are_too_many_are_refused_unread(fresh_python):
    path = "/api/v1/snapshot"
    with served(fresh_python, "-c", ONE_A_LONG_TIME) as port:
        assert ask(port, path).startswith(b"HTTP/1.1 200")
        assert ask(port, path).startswith(b"HTTP/1.1 503")
        client = http.client.HTTPConnection("127.0.0.1", port)
        with contextlib.closing(client):
            client.request("GET", path)
            with client.getresponse() as answer:
                assert answer.getheader("Retry-After") == "1"
                assert "more requests" in json.load(answer)["error"]
        # These have room of their own.
        assert ask(port, "/metrics").startswith(b"HTTP/1.1 200")
        assert ask(port, "/metrics").startswith(b"HTTP/1.1 503")
        for _ in range(3):
            assert ask(port, "/livez").startswith(b"HTTP/1.1 200")


def test_a_request_that_comes_in_pieces_is_answered(port: int):
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        for piece in (b"GET /livez HT", b"TP/1.1\r\n", b"Host: localhost\r\n", b"\r\n"):
            client.sendall(piece)
        assert client.recv(64).startswith(b"HTTP/1.1 200")


def test_who_sends_requests_before_an_answer_gets_one_and_asks_again(port: int):
    request = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(request * 3)
        with client.makefile("rb") as answers:
            said = answers.read()  # until it is closed
    assert said.count(b"HTTP/1.1 200") == 1
