"""examples/serve_async.py: its servers answer alike, also when asked at once."""

from __future__ import annotations

import http.client
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "serve_async.py"
USERS = range(40)
SERVERS = {
    "npu": ["--device", "npu"],
    "npu_eager": ["--device", "npu", "--how", "eager"],
    "cpu": ["--device", "cpu"],
}


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    servers = {
        name: subprocess.Popen(
            [sys.executable, str(EXAMPLE), "serve", *options],
            stdout=subprocess.PIPE,
            text=True,
        )
        for name, options in SERVERS.items()
    }
    yield {name: int(s.stdout.readline()) for name, s in servers.items()}
    for server in servers.values():
        server.terminate()
        server.communicate()


def ask(port: int, *paths: str) -> list[tuple[int, bytes]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    answers = []
    for path in paths:
        connection.request("GET", path)
        response = connection.getresponse()
        answers.append((response.status, response.read()))
    connection.close()
    return answers


@pytest.mark.parametrize("npu", ["npu", "npu_eager"])
def test_npu_answers_as_cpu_one_at_a_time_and_in_batches(ports, npu):
    expected = ask(ports["cpu"], *(f"/{user}" for user in USERS))
    assert len({body for _, body in expected}) > 1
    assert ask(ports[npu], *(f"/{user}" for user in USERS)) == expected

    got: dict[int, tuple[int, bytes]] = {}

    def client(user: int) -> None:
        (got[user],) = ask(ports[npu], f"/{user}")

    threads = [threading.Thread(target=client, args=(user,)) for user in USERS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [got[user] for user in USERS] == expected


def test_what_is_not_a_user_is_refused(ports):
    connection = http.client.HTTPConnection("127.0.0.1", ports["npu"], timeout=60)
    connection.request("POST", "/1")
    assert connection.getresponse().status == 400
    connection.close()
