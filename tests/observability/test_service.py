"""npu-dispatch serve: what it answers, and to whom."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest
from prometheus_server import bearer, serving
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from npu_dispatch.observe.judge.verdict import cycles
from npu_dispatch.observe.segment.layout import OFFSETS
from npu_dispatch.observe.serve.app import ServiceConfig, create_app

RUNNING = 1 << 63


# Ten submitted, four done, since 1970.
HANGING = {("StreamBlock.tail", 0): 10, ("StreamBlock.retired", 0): 4}


def held(stream: int, by: int) -> dict[tuple[str, int], int]:
    return {
        ("StreamBlock.tail", stream): 10,
        ("StreamBlock.held", stream): RUNNING,
        ("StreamBlock.held_by", stream): 1 + by,
        ("StreamBlock.held_until", stream): 7,
    }


def test_is_ready_while_nothing_hangs(client):
    with client() as c:
        assert c.get("/livez").status_code == 200
        assert c.get("/readyz").json() == {"status": "ok", "reasons": []}


def test_is_not_ready_while_a_stream_hangs_and_says_which(client):
    with client(HANGING) as c:
        answer = c.get("/readyz")

    assert answer.status_code == 503
    [reason] = answer.json()["reasons"]
    assert "hung: npu:0 stream 0 has not begun" in reason
    assert "6 tasks queued" in reason


def test_is_not_ready_while_a_stream_has_failed(client):
    # `state` 2, the device number 0 above it.
    with client({("StreamBlock.state", 0): 2}) as c:
        assert "failed: npu:0 stream 0" in c.get("/readyz").json()["reasons"][0]


def test_a_circle_of_waits_is_named(client):
    fields = {**held(0, by=1), **held(1, by=0)}
    with client(fields, streams=2) as c:
        [process] = c.get("/api/v1/snapshot").json()["processes"]
        [reason] = c.get("/readyz").json()["reasons"]

    assert process["cycles"] == [["0:0", "0:1"]]
    assert reason.endswith(
        "hung: streams wait in a circle: "
        "npu:0 stream 0 -> npu:0 stream 1 -> npu:0 stream 0"
    )


def test_a_chain_of_waits_is_no_circle():
    assert list(cycles({(0, 1): (0, 2), (0, 2): (0, 3)})) == []
    assert list(cycles({(0, 1): (0, 2), (0, 2): (0, 3), (0, 3): (0, 2)})) == [
        [(0, 2), (0, 3)]
    ]


def test_pending_lists_the_tasks_in_order(client):
    with client(HANGING) as c:
        [found] = c.get("/api/v1/streams/0:0/pending?limit=2").json()

    assert found["queued"] == 6
    assert [task["task"] for task in found["tasks"]] == [4, 5]
    assert found["tasks"][0]["age_s"] > 0


def test_what_it_cannot_answer_is_said_in_json(client):
    with client() as c:
        for path, status in (
            ("/api/v1/streams/9:9/pending", 404),
            ("/api/v1/streams/0:0/pending?limit=many", 400),
            ("/api/v1/trace", 404),  # of a process that has no trace file
            ("/api/v1/trace?seconds=soon", 400),
            ("/api/v1/trace?seconds=1e9", 400),
            ("/api/v1/trace?format=vcr", 400),
            ("/api/v1/trace?process=77", 404),
            ("/api/v1/stacks?process=77", 404),
            ("/nothing", 404),
        ):
            answer = c.get(path)
            assert answer.status_code == status, path
            assert answer.json()["error"], path


def test_the_api_names_the_process(client, ghost):
    with client({("DeviceBlock.allocated", 0): 5}) as c:
        [process] = c.get("/api/v1/snapshot").json()["processes"]
    assert (process["pid"], process["id"]) == (ghost, str(ghost))


def test_nothing_can_be_changed_from_outside(client):
    with client() as c:
        for path in ("/", "/metrics", "/api/v1/snapshot"):
            assert c.post(path, content=b"x").status_code == 405


ADMIN = [
    f"/api/v1/admin/{path}"
    for path in (
        *("dump", "trace/start", "trace/stop"),
        *("launch-blocking/on", "launch-blocking/off"),
    )
]
TOKEN = "0123456789abcdef"


@pytest.mark.parametrize("path", ADMIN)
def test_only_an_administrator_changes_anything(client, path):
    with client() as c:
        refused = c.post(path, headers=bearer(TOKEN))
        assert refused.status_code == 403
        assert "--enable-admin" in refused.json()["error"]
    with client(admin_token=TOKEN) as c:
        assert c.get(path).status_code == 405
        for headers in ({}, bearer(TOKEN[:-1]), bearer(""), {"Authorization": TOKEN}):
            unknown = c.post(path, headers=headers)
            assert unknown.status_code == 401
            assert unknown.headers["WWW-Authenticate"] == "Bearer"
        assert c.post(path, headers=bearer(TOKEN)).status_code != 401


def test_a_dump_says_what_hangs(client, ghost, capfd):
    with client(HANGING, admin_token=TOKEN) as c:
        [found] = c.post("/api/v1/admin/dump", headers=bearer(TOKEN)).json()

    assert found["pid"] == ghost
    assert "npu:0 stream 0: task 4 has not begun; 6 queued" in found["text"]
    assert found["text"] in capfd.readouterr().err


def test_launch_blocking_is_one_word_of_the_segment(write_segment, ghost):
    folder = write_segment(ghost, HANGING)
    before = (folder / str(ghost)).read_bytes()
    word = OFFSETS["Segment.control"] + OFFSETS["ControlBlock.launch_blocking"]
    app = create_app(ServiceConfig(directory=folder, admin_token=TOKEN))
    with TestClient(app, base_url="http://localhost") as c:
        for switch, value in (("on", 2), ("off", 1)):
            path = f"/api/v1/admin/launch-blocking/{switch}"
            [found] = c.post(path, headers=bearer(TOKEN)).json()
            assert found == {"pid": ghost, "launch_blocking": switch == "on"}
            after = (folder / str(ghost)).read_bytes()
            changed = {i for i, b in enumerate(before) if after[i] != b}
            assert changed == {word}
            assert after[word] == value
        path = "/api/v1/admin/launch-blocking/perhaps"
        assert c.post(path, headers=bearer(TOKEN)).status_code == 404


def test_the_service_measures_itself(client):
    with client() as c:
        c.get("/livez")
        c.get("/api/v1/streams/0:0/pending")
        c.get("/nothing/of/ours")
        text = c.get("/metrics").text

    for route, status in (
        ("/livez", 200),
        ("/api/v1/streams/{id}/pending", 200),
        ("other", 404),
    ):
        labels = f'{{method="GET",route="{route}",status="{status}"}}'
        assert f"npu_dispatch_http_requests_total{labels} 1.0" in text
        assert f"npu_dispatch_http_request_duration_seconds_count{labels} 1.0" in text
    assert "nothing" not in text
    assert "npu_dispatch_event_loop_lag_seconds_count" in text


def test_it_can_be_mounted(write_segment, ghost):
    inner = create_app(ServiceConfig(directory=write_segment(ghost, {})))
    outer = Starlette(routes=[Mount("/npu", inner)])
    inner.state.watcher.telemetry.last_reading -= 3600
    # No lifespan reaches a mounted application: it lives before anybody asks, and
    # starts by itself.
    with TestClient(outer, base_url="http://localhost") as c:
        livez = c.get("/npu/livez")
        assert (livez.status_code, livez.json()["status"]) == (200, "ok")
        assert c.get("/npu/api/v1/snapshot").json()["processes"][0]["pid"] == ghost
        assert "npu_dispatch_queue_capacity" in c.get("/npu/metrics").text


def test_events_end_when_the_service_stops(child_environment):
    with serving(child_environment(NPU_AUTOLOAD="0")) as (service, where):
        url = f"http://{where}/api/v1/events"
        with urllib.request.urlopen(url, timeout=60) as events:
            lines = iter(events)
            found = [next(lines) for _ in range(7)]
            service.send_signal(signal.SIGTERM)
            for _ in lines:  # until its end: no time-out, no reset
                pass

        # What is known of the past comes first: nothing, before the first reading.
        assert found[2:4] == [b"event: history\n", b"data: []\n"]
        assert found[5] == b"event: snapshot\n"
        assert "processes" in json.loads(found[6].removeprefix(b"data: "))
        assert service.wait(60) in (0, -signal.SIGTERM)
