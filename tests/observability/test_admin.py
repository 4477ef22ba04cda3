"""What the service can ask of a living process, and what it tells of its lines."""

from __future__ import annotations

import json

import pytest
from starlette.testclient import TestClient

from npu_dispatch.observe.serve.app import ServiceConfig, create_app

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
