"""Who is answered by the service, and what cannot be used up by others."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
from prometheus_server import bearer, serving
from starlette.testclient import TestClient

from npu_dispatch.observe.segment.layout import HEADER
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.system import process_start
from npu_dispatch.observe.serve.access import Limits
from npu_dispatch.observe.serve.app import ServiceConfig, create_app

TOKEN, ADMIN = "0123456789abcdef", "fedcba9876543210"
GET_EVENTS = b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n"


def write_segment_beside(forged: Path, pid: int) -> int:
    """Write one of another process as the forged one, without what is forged."""
    data = bytearray(forged.read_bytes())
    fields = list(HEADER.struct.unpack_from(data))
    fields[7], fields[9] = pid, process_start(pid)
    HEADER.struct.pack_into(data, 0, *fields)
    at = -(-(fields[2] + fields[4] * fields[3]) // 64) * 64
    data[at : at + 4] = (1).to_bytes(4, "little")
    forged.with_name(str(pid)).write_bytes(data)
    return pid


def test_requests_by_another_name_use_up_nothing(client):
    with client(max_rate=3.0) as c:
        for _ in range(20):
            answer = c.get("/api/v1/snapshot", headers={"Host": "evil.example"})
            assert answer.status_code == 400
        assert c.get("/api/v1/snapshot").status_code == 200


def test_names_that_are_answered(client):
    for given, asked, status in (
        ("127.0.0.1", "localhost:9401", 200),
        ("127.0.0.1", "[::1]:9401", 200),
        ("trainer.example", "trainer.example", 200),
        ("trainer.example", "evil.example", 400),
        ("fd00::1", "[fd00::1]:9401", 200),
        ("127.0.0.1", "[fd00::1]:9401", 400),
        ("*.example", "a.example:9401", 200),
        ("*.example", "example:9401", 400),
        ("*", "anything", 200),
    ):
        with client(hosts=(given,)) as c:
            answer = c.get("/livez", headers={"Host": asked})
        assert answer.status_code == status, (given, asked)
        assert ("--allow-host" in answer.text) == (status == 400)


async def test_a_client_in_a_loop_waits_for_its_refusals(monkeypatch):
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    async def answer(*_) -> None:
        waits.append(0.0)

    async def ignore(_) -> None:
        pass

    loop = SimpleNamespace(sleep=wait)
    monkeypatch.setattr("npu_dispatch.observe.serve.access.asyncio", loop)
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    monkeypatch.setattr("npu_dispatch.observe.serve.access.time", clock)
    limits = Limits(answer, rate=1.0)

    for _ in range(3):
        await limits({"type": "http", "path": "/metrics"}, ignore, ignore)

    assert waits == [0.0, 1.0, 1.0]


def test_requests_without_the_token_use_up_nothing(client, stopped_clock):
    with client(token=TOKEN, max_rate=3.0) as c:
        codes = {c.get("/api/v1/snapshot").status_code for _ in range(20)}

        assert codes == {401}
        assert c.get("/api/v1/snapshot", headers=bearer(TOKEN)).status_code == 200


def test_a_client_uses_up_its_own_requests(client, stopped_clock):
    with client(max_rate=1.0) as c:
        codes = [c.get("/api/v1/snapshot").status_code for _ in range(3)]
        other = TestClient(c.app, base_url="http://localhost", client=("10.0.0.7", 1))

        assert codes == [200, 429, 429]
        assert other.get("/api/v1/snapshot").status_code == 200


def asks_from(app, address: str) -> int:
    one = TestClient(app, base_url="http://localhost", client=(address, 1))
    return one.get("/api/v1/snapshot").status_code


def test_a_client_has_one_rate_for_all_its_addresses(client, stopped_clock):
    for addresses in (
        ("127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.2"),  # of this machine
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", "2001:db8:1:2::3%eth0"),
        ("10.0.0.7", "::ffff:10.0.0.7"),  # of either family
    ):
        with client(max_rate=1.0) as c:
            assert asks_from(c.app, addresses[0]) == 200
            for address in addresses[1:]:
                assert asks_from(c.app, address) == 429, address
            for other in ("2001:db8:1:3::1", "10.0.0.8"):
                assert asks_from(c.app, other) == 200, other


def test_scrapers_and_supervisors_have_room_of_their_own(
    client, stopped_clock, monkeypatch
):
    with client(max_rate=1.0) as c:
        codes = [c.get("/api/v1/snapshot").status_code for _ in range(20)]
        assert codes == [200] + [429] * 19
        assert c.get("/metrics").status_code == 200
        assert {c.get("/livez").status_code for _ in range(20)} == {200}
    monkeypatch.setattr("npu_dispatch.observe.serve.access.Limits.MOST_AT_ONCE", 0)
    with client() as c:
        codes = [c.get(path).status_code for path in ("/", "/metrics", "/livez")]
        assert codes == [503, 200, 200]


def test_reading_needs_the_token(client):
    with client(token=TOKEN) as c:
        for path in ("/", "/metrics", "/readyz", "/api/v1/events"):
            assert c.get(path).status_code == 401, path
            assert c.get(path, headers=bearer("another")).status_code == 401, path
            assert c.get(f"{path}?token=another").status_code == 401, path
        assert c.get("/livez").status_code == 200


def test_the_token_is_good_for_reading_and_the_administrators_too(client):
    with client(token=TOKEN, admin_token=ADMIN) as c:
        for token in (TOKEN, ADMIN):
            assert c.get("/metrics", headers=bearer(token)).status_code == 200
        dump = "/api/v1/admin/dump"
        assert c.post(dump, headers=bearer(TOKEN)).status_code == 401
        assert c.post(dump, headers=bearer(ADMIN)).status_code == 200


def test_a_browser_gets_a_cookie_for_the_token(client):
    with client(token=TOKEN) as c:
        answer = c.get(f"/?process=0&token={TOKEN}")
        assert (answer.status_code, answer.headers["location"]) == (303, "?process=0")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert "Secure" not in cookie  # or a browser would not send it back
        assert c.get("/").status_code == 200  # the client keeps it
        assert c.get("/api/v1/snapshot").status_code == 200


def test_a_cookie_says_nothing_about_the_token(client):
    with client(token=TOKEN) as c:
        cookies = {c.get(f"/?token={TOKEN}").headers["set-cookie"] for _ in range(2)}
        c.cookies.clear()

        assert len(cookies) == 2
        assert not [cookie for cookie in cookies if TOKEN in cookie]
        forged = {"Cookie": f"npu_dispatch_session={TOKEN}"}
        assert c.get("/metrics", headers=forged).status_code == 401


def test_a_cookie_is_for_https_where_the_service_is(client):
    with client(token=TOKEN) as c:
        c.base_url = "https://localhost"

        assert "Secure" in c.get(f"/?token={TOKEN}").headers["set-cookie"]


def test_no_address_has_the_administrators_token(client):
    with client(token=TOKEN, admin_token=ADMIN) as c:
        answer = c.get(f"/?token={ADMIN}")

        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_the_oldest_sessions_end_where_there_are_many(client, monkeypatch):
    monkeypatch.setattr("npu_dispatch.observe.serve.access.Tokens.MOST_SESSIONS", 2)
    with client(token=TOKEN) as c:
        answers = [c.get(f"/?token={TOKEN}") for _ in range(3)]
        begun = [answer.cookies["npu_dispatch_session"] for answer in answers]
        c.cookies.clear()
        headers = [{"Cookie": f"npu_dispatch_session={one}"} for one in begun]

        codes = [c.get("/metrics", headers=one).status_code for one in headers]

        assert codes == [401, 200, 200]


@contextmanager
def served(child_environment, *options: str) -> Iterator[tuple[str, int]]:
    with serving(child_environment(NPU_AUTOLOAD="0"), *options) as (_, where):
        host, _, port = where.rpartition(":")
        yield host, int(port)


def test_a_request_without_end_is_refused(child_environment):
    with served(child_environment) as where, socket.create_connection(where) as one:
        one.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (17 << 10))
        assert one.recv(12) == b"HTTP/1.1 400"


def test_listeners_that_come_at_once_are_not_more_than_allowed(child_environment):
    with served(child_environment, "--max-clients=2") as where:
        clients = [socket.create_connection(where) for _ in range(12)]
        for one in clients:
            one.sendall(GET_EVENTS)
        codes = [one.recv(12)[-3:] for one in clients]
        assert sorted(codes) == [b"200"] * 2 + [b"503"] * 10
        for one in clients:
            one.close()
        # Their places are free again, as soon as the service sees them go.
        while True:
            with socket.create_connection(where) as again:
                again.sendall(GET_EVENTS)
                if again.recv(12)[-3:] == b"200":
                    break


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(str(self._path))


def test_a_unix_socket_is_for_its_owner_only(child_environment, tmp_path: Path):
    path = tmp_path / "service"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # what a killed service leaves
    command = [sys.executable, "-m", "npu_dispatch", "serve", "--unix", str(path)]
    env = child_environment(NPU_AUTOLOAD="0")
    with subprocess.Popen(command, env=env, stdout=subprocess.PIPE) as service:
        assert service.stdout is not None
        assert service.stdout.readline().decode().strip() == f"unix:{path}"
        assert path.stat().st_mode & 0o777 == 0o600
        connection = UnixConnection(path)
        connection.request("GET", "/livez")
        assert connection.getresponse().status == 200
        connection.close()
        second = subprocess.run(command, env=env, capture_output=True, timeout=60)
        assert second.returncode != 0
        assert b"in use" in second.stderr
        service.terminate()
        assert service.wait(60) in (0, -15)
    assert not path.exists()


def test_a_forged_segment_hides_no_other(write_segment, ghost):
    folder = write_segment(os.getpid(), {("StreamBlock.state", 0): 77})
    forged = folder / str(os.getpid())
    good = write_segment_beside(forged, ghost)
    app = create_app(ServiceConfig(directory=folder))
    with TestClient(app, base_url="http://localhost") as c:
        found = c.get("/api/v1/snapshot").json()["processes"]
        metrics = c.get("/metrics")

    assert [process["pid"] for process in found] == [good]
    assert metrics.status_code == 200
    assert "npu_dispatch_exporter_segments_stale 1" in metrics.text


def test_readings_that_fail_are_told_once_and_end_when_they_can(
    client, monkeypatch, caplog
):
    def fail(_: Processes) -> None:
        raise OSError(30, "Read-only file system")

    with client(interval=0.05) as c:
        with monkeypatch.context() as broken:
            broken.setattr(Processes, "refresh", fail)
            while c.app.state.watcher.telemetry.failed_readings < 3:
                assert c.get("/livez").json()["status"] == "ok"
            c.app.state.watcher.telemetry.last_reading -= 3600
            answer = c.get("/livez")
            assert answer.status_code == 503
            assert answer.json()["reading_age_s"] >= 3600
        while c.get("/livez").status_code != 200:
            pass
        text = c.get("/metrics").text
        assert "npu_dispatch_readings_failed_total" in text
        told = [record.message for record in caplog.records]
        assert told == ["the counters could not be read"]
        assert "npu_dispatch_last_reading_timestamp_seconds" in text


FORKED = """
import os, signal, sys
from npu_dispatch.metrics import start_exporter
exporter = start_exporter(0)
worker = os.fork()
if worker == 0:
    exporter.close()  # not its own
    signal.pause()
print(os.getsid(exporter._process.pid) != os.getsid(0), flush=True)
import urllib.request
with urllib.request.urlopen(exporter.url, timeout=30) as answer:
    print(answer.status, flush=True)
exporter.close()
os.kill(worker, signal.SIGKILL)
print("closed", exporter._process.returncode, flush=True)
"""


def test_an_exporter_ends_although_workers_have_its_pipe(trainer):
    program = trainer(FORKED)

    assert [program.line() for _ in range(3)] == ["True", "200", "closed -15"]


def test_an_exporter_serves_ipv6(trainer):
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("no IPv6")
    code = FORKED.replace("start_exporter(0)", "start_exporter(0, '::1')")

    program = trainer(code)

    assert [program.line() for _ in range(3)] == ["True", "200", "closed -15"]
