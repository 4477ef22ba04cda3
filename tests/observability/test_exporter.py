"""Who is answered by an exporter, which is like the service; and how often it looks."""

from __future__ import annotations

import http.client
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from starlette.testclient import TestClient

from npu_dispatch.metrics import start_exporter
from npu_dispatch.observe.serve.app import ServiceConfig, create_app
from npu_dispatch.observe.serve.scrapes import Scrapes

TOKEN = "0123456789abcdef"


def ask(port: int, path: str, **headers: str) -> tuple[int, bytes]:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as c:
        c.request("GET", path, headers=headers)
        answer = c.getresponse()
        return answer.status, answer.read()


def test_an_exporter_is_called_by_its_name():
    with start_exporter(0, allow_hosts=["node7"]) as served:
        assert ask(served.port, "/metrics", Host="evil.example")[0] == 400
        assert ask(served.port, "/metrics", Host=f"node7:{served.port}")[0] == 200
        assert ask(served.port, "/metrics")[0] == 200
        assert ask(served.port, "/nothing")[0] == 404


def test_an_exporter_may_need_a_token():
    with start_exporter(0, token=TOKEN) as served:
        words = Path(f"/proc/{served._process.pid}/cmdline").read_text()
        bearer = f"Bearer {TOKEN}"

        assert TOKEN not in words
        assert ask(served.port, "/metrics")[0] == 401
        assert ask(served.port, "/metrics", Authorization=bearer)[0] == 200
        assert ask(served.port, "/livez")[0] == 200


def test_names_and_tokens_that_cannot_be_are_refused():
    with pytest.raises(TypeError, match=r"write \['node7'\]"):
        start_exporter(0, allow_hosts="node7")
    with pytest.raises(ValueError, match="16 characters or more, found 3"):
        start_exporter(0, token="abc")
    with pytest.raises(ValueError, match=r"expected a name, \*\.NAME or \*"):
        start_exporter(0, allow_hosts=["node*"])


def test_an_answer_is_given_again_for_a_while(write_segment, ghost):
    folder = write_segment(ghost, {})
    kept, fresh = (
        Scrapes(ServiceConfig(directory=folder, kept_seconds=seconds))
        for seconds in (3600, 0)
    )

    assert kept.answer("")[0] is kept.answer("")[0]
    assert fresh.answer("")[0] != fresh.answer("")[0]  # it has another time


def test_clients_in_a_loop_get_one_reading(
    write_segment, ghost, monkeypatch: pytest.MonkeyPatch
):
    clock = SimpleNamespace(**vars(time) | {"monotonic": lambda: 0.0})
    monkeypatch.setattr("npu_dispatch.observe.serve.scrapes.time", clock)
    app = create_app(ServiceConfig(directory=write_segment(ghost, {}), max_rate=1e9))
    with TestClient(app, base_url="http://localhost") as c:
        first, *others = [c.get("/metrics").content for _ in range(5)]

    assert others == [first] * 4


def test_scrapes_of_some_series_share_the_reading_of_all(
    write_segment, ghost, monkeypatch: pytest.MonkeyPatch
):
    folder = write_segment(ghost, {})
    scrapes = Scrapes(ServiceConfig(directory=folder, kept_seconds=3600))
    readings, read = [], scrapes.families
    monkeypatch.setattr(
        scrapes, "families", lambda **how: readings.append(how) or read(**how)
    )
    name = "npu_dispatch_exporter_segments_stale"

    some = {scrapes.answer("", names=[name])[0] for _ in range(20)}
    whole = scrapes.answer("")[0]

    assert len(readings) == 1
    of_name = [one for one in whole.splitlines(True) if name.encode() in one]
    assert some == {b"".join(of_name)} and len(of_name) == 3
