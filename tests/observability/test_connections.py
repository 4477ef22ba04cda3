"""Clients of the service that say nothing."""

from __future__ import annotations

import contextlib
import http.client
import socket
from subprocess import PIPE

import pytest

SILENT = 300


@pytest.fixture
def port(fresh_python):
    command = ("-m", "npu_dispatch", "serve", "--port", "0")
    with fresh_python.start(*command, stdout=PIPE) as service:
        yield int(service.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        service.terminate()


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
