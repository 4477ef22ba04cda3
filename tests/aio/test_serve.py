"""examples/serve_async.py: both servers answer alike, also when asked at once."""

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


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, int]]:
    servers = {
        device: subprocess.Popen(
            [sys.executable, str(EXAMPLE), "serve", "--device", device],
            stdout=subprocess.PIPE,
            text=True,
        )
        for device in ("npu", "cpu")
    }
    yield {device: int(s.stdout.readline()) for device, s in servers.items()}
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


def test_npu_answers_as_cpu_one_at_a_time_and_in_batches(ports):
    expected = ask(ports["cpu"], *(f"/{user}" for user in USERS))
    assert len({body for _, body in expected}) > 1
    assert ask(ports["npu"], *(f"/{user}" for user in USERS)) == expected

    got: dict[int, tuple[int, bytes]] = {}

    def client(user: int) -> None:
        (got[user],) = ask(ports["npu"], f"/{user}")

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
