"""What the service can ask of a living process, and what it tells of its lines."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from starlette.testclient import TestClient

from npu_dispatch.observe.segment.layout import OFFSETS
from npu_dispatch.observe.serve.app import ServiceConfig, create_app
from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path

TOKEN = {"Authorization": "Bearer 0123456789abcdef"}
STEPS = """
import sys, torch
a = torch.ones(64, device="npu")
def step():
    for _ in range(64):
        a.add_(1)
    return a.sum().item()
for line in sys.stdin:
    step()
    print("stepped", flush=True)
"""


@pytest.fixture
def live(trainer):
    program = trainer(STEPS)

    def step(n: int = 1) -> None:
        for _ in range(n):
            program.say("step")
            assert program.line() == "stepped"

    step()
    app = create_app(
        ServiceConfig(pid=program.pid, admin_token="0123456789abcdef", kept_seconds=0.0)
    )
    with TestClient(app, base_url="http://localhost") as client:
        yield client, step


def blocked_launches(client: TestClient) -> float:
    found = [
        float(line.split()[-1])
        for line in client.get("/metrics").text.splitlines()
        if line.startswith("npu_dispatch_tasks_bypassed_total")
        and 'reason="launch_blocking"' in line
        and 'stream="0"' in line
    ]
    assert len(found) <= 1
    return sum(found)  # a counter appears with its first count


def test_launch_blocking_is_switched_in_the_trainer(live):
    client, step = live
    assert blocked_launches(client) == 0

    client.post("/api/v1/admin/launch-blocking/on", headers=TOKEN)
    step(2)
    during = blocked_launches(client)
    client.post("/api/v1/admin/launch-blocking/off", headers=TOKEN)
    step(2)
    after = blocked_launches(client)
    step(2)

    # The second step's 64 launches all waited.
    assert during >= 64
    assert blocked_launches(client) == after


def test_a_trace_of_the_last_seconds(live):
    client, step = live
    refused = client.get("/api/v1/trace")
    assert refused.status_code == 409
    assert "NPU_TRACE=1" in refused.json()["error"]

    client.post("/api/v1/admin/trace/start", headers=TOKEN)
    step(3)
    chrome = client.get("/api/v1/trace?seconds=30")
    perfetto = client.get("/api/v1/trace?seconds=30&format=perfetto")
    client.post("/api/v1/admin/trace/stop", headers=TOKEN)

    names = [e.get("name") for e in json.loads(chrome.content)["traceEvents"]]
    assert names.count("aten::add_.Tensor") + names.count("aten::add.out") >= 64
    assert "attachment" in chrome.headers["Content-Disposition"]
    assert len(perfetto.content) > 1000
    assert client.get("/api/v1/trace").status_code == 409


def test_stacks_name_the_lines_of_tasks_and_waits(live):
    client, _ = live
    [found] = client.get("/api/v1/stacks").json()

    [stream] = found["streams"]
    last = stream["recent"][-64:]
    assert [task["task"] for task in last] == list(
        range(last[0]["task"], last[0]["task"] + len(last))
    )
    lines = {task["at"] for task in stream["recent"]}
    assert any(at.endswith(":6 in step") for at in lines)  # a.add_(1)
    by_line = {line["at"]: line for line in found["lines"]}
    [waited] = [line for at, line in by_line.items() if at.endswith(":7 in step")]
    assert waited["recent_tasks"] >= 1
    assert waited.get("reason", "item") == "item"
    assert stream["head"] is None


@pytest.fixture
def own_trace() -> Iterator[TraceFile]:
    """This process's; it keeps no records afterwards."""
    torch.npu.init()
    with TraceFile.of_process(os.getpid()) as file:
        yield file
        file.wanted = False


@pytest.fixture
def far(write_segment):
    """far(pid): a segment of a process of that number in another container."""
    owners = []

    def write(pid: int) -> Path:
        folder = write_segment(pid, {}, namespace=4026, start=1)
        path = (folder / str(pid)).rename(folder / f"{pid}-4026")
        owners.append(os.open(path, os.O_RDWR))
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        fcntl.fcntl(owners[-1], fcntl.F_OFD_SETLK, lock)
        return folder

    yield write
    for owner in owners:
        os.close(owner)


def service(folder: Path) -> TestClient:
    config = ServiceConfig(directory=folder, admin_token="0123456789abcdef")
    return TestClient(create_app(config), base_url="http://localhost")


def test_no_process_is_switched_where_one_cannot_be(write_segment, ghost, own_trace):
    write_segment(os.getpid(), {})
    torn = trace_path(ghost)
    torn.write_bytes(bytes(4096))
    try:
        with service(write_segment(ghost, {})) as c:
            answer = c.post("/api/v1/admin/trace/start", headers=TOKEN)
    finally:
        torn.unlink()

    assert answer.status_code == 404
    assert not own_trace.wanted


def test_who_cannot_be_traced_keeps_nobody_from_it(write_segment, ghost, own_trace):
    write_segment(os.getpid(), {})
    with service(write_segment(ghost, {})) as c:
        started = c.post("/api/v1/admin/trace/start", headers=TOKEN)
        found = c.get("/api/v1/trace")
        of_one = c.get(f"/api/v1/trace?process={ghost}")

    assert started.json() == [{"pid": os.getpid(), "tracing": True}]
    assert (found.status_code, of_one.status_code) == (200, 404)


def test_who_keeps_no_records_keeps_nobody_from_a_trace(
    write_segment, trainer, own_trace
):
    other = trainer(STEPS)
    other.say("step")
    assert other.line() == "stepped"
    write_segment(os.getpid(), {})
    own_trace.wanted = True
    with service(write_segment(other.pid, {})) as c:
        found = c.get("/api/v1/trace")
        of_one = c.get(f"/api/v1/trace?process={other.pid}")

    assert (found.status_code, of_one.status_code) == (200, 409)
    assert str(other.pid) in of_one.json()["error"]


def test_no_process_waits_where_one_may_not_be_asked(write_segment, ghost):
    first, last = sorted((os.getpid(), ghost))
    write_segment(first, {})
    folder = write_segment(last, {})
    with service(folder) as c:
        assert c.get("/readyz").status_code == 200
        (folder / str(last)).chmod(0o666)
        answer = c.post("/api/v1/admin/launch-blocking/on", headers=TOKEN)

    assert answer.status_code == 403
    assert "every user may write" in answer.json()["error"]
    at = OFFSETS["Segment.control"] + OFFSETS["ControlBlock.launch_blocking"]
    assert struct.unpack_from("<Q", (folder / str(first)).read_bytes(), at) == (0,)


def test_the_number_of_another_containers_process_is_nobodys_here(far, own_trace):
    pid = os.getpid()
    with service(far(pid)) as c:
        of = f"process={pid}-4026"
        assert c.get(f"/api/v1/stacks?{of}").status_code == 200
        started = c.post(f"/api/v1/admin/trace/start?{of}", headers=TOKEN)
        assert not own_trace.wanted
        own_trace.wanted = True
        found = c.get(f"/api/v1/trace?{of}")

    assert (started.status_code, found.status_code) == (404, 404)
    assert "another container" in found.json()["error"]


def test_a_trace_of_all_leaves_out_other_containers(write_segment, far, own_trace):
    far(7)
    own_trace.wanted = True
    with service(write_segment(os.getpid(), {})) as c:
        assert c.get("/api/v1/trace?process=7-4026").status_code == 404
        assert c.get("/api/v1/trace").status_code == 200
