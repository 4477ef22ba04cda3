"""Host threads that wait now: who, where, why, for what and since when."""

from __future__ import annotations

import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from npu_dispatch.observe.segment import StatsReader, segment_file
from npu_dispatch.observe.serve.app import ServiceConfig, create_app

# A stream that stands still; one thread waits for it, another for room in its
# queue. A line of standard input lets it go on, and a second one again.
STUCK = """
import sys, threading, torch
npu = torch.npu
held = npu.Stream()
gate = npu.ExternalEvent()
x = torch.ones(8, device="npu")
npu.synchronize()
gate.wait(held)
def fill(n=10_000):
    with npu.stream(held):
        for _ in range(n):
            x.add_(1)  # line 12
def release():
    for _ in range(2):
        sys.stdin.readline()
        gate.record(npu.default_stream())
fill(2000)  # the wait below lasts longer than that for room, 1024 tasks
filling = threading.Thread(target=fill)
filling.start()
threading.Thread(target=release, daemon=True).start()
print(held.stream_id, flush=True)
held.synchronize()  # line 22
filling.join()
held.synchronize()
gate.wait(held)
assert held.drained_handle() == held.npu_stream  # line 26
print("released", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def stuck(trainer):
    program = trainer(STUCK)
    stream = f"0:{program.line()}"
    # It asks again until a wait is there: a quick host would be refused for that.
    config = ServiceConfig(
        pid=program.pid, interval=0.05, hang_seconds=0.0, max_rate=1e9, kept_seconds=0.0
    )
    with (
        TestClient(create_app(config), base_url="http://localhost") as client,
        StatsReader(segment_file(program.pid)) as reader,
    ):
        while len(reader.open_waits()) < 2:  # the two threads are on their way
            assert program.process.poll() is None
        yield client, program, stream, reader


def waiting(client: TestClient, n: int, reason: str = "") -> dict[str, Any]:
    """Return what the service says once `n` threads wait, for that reason."""
    while True:
        found: dict[str, list[dict[str, Any]]] = client.get("/api/v1/snapshot").json()
        [process] = found["processes"]
        reasons = [wait["reason"] for wait in process["waiting"]]
        if len(reasons) == n and reason in (*reasons, ""):
            return process


def test_a_wait_that_lasts_is_shown_with_its_line_and_thread(stuck):
    client, program, stream, _ = stuck
    process = waiting(client, 2)

    by_reason = {wait["reason"]: wait for wait in process["waiting"]}
    sync, full = by_reason["stream_sync"], by_reason["full_queue"]
    assert sync["at"].endswith(":22 in <module>")
    assert (sync["thread"], sync["main"]) == (program.pid, True)
    assert full["at"].endswith(":12 in fill")
    assert not full["main"]
    assert sync["stream"] == full["stream"] == stream
    assert 0 < full["until"] <= sync["until"]
    ages = [wait["age_s"] for wait in process["waiting"]]
    assert ages == sorted(ages, reverse=True)
    lines = {line["at"].rpartition("/")[2]: line for line in process["lines"]}
    assert lines["<string>:22 in <module>"]["seconds"] >= sync["age_s"]


def test_its_age_grows_and_so_does_what_its_line_has_cost(stuck):
    _, _, _, reader = stuck
    [before] = [w for w in reader.open_waits() if w.reason == "stream_sync"]
    [cost] = [site for site in reader.waits_by_site() if site.at == before.at]
    [after] = [w for w in reader.open_waits() if w.reason == "stream_sync"]

    assert (after.thread, after.since_ns) == (before.thread, before.since_ns)
    assert before.ns < cost.wait_ns < after.ns
    assert before.since_ns < time.monotonic_ns()


def scraped(client: TestClient) -> dict[tuple[str, str], float]:
    """Return each metric's values by the label that matters here."""
    found = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for name, labels, value, *_ in family.samples:
            which = labels.get("reason") or labels.get("stream", "")
            found[name.removeprefix("npu_dispatch_"), which] = value
    return found


def test_in_the_metrics_what_hangs_stays_and_its_age_grows(stuck):
    client, _, name, _ = stuck
    stream = name.partition(":")[2]
    first, second = scraped(client), scraped(client)

    stalled = ("oldest_task_enqueued_timestamp_seconds", stream)
    assert first[stalled] == second[stalled] < time.time()
    for grows in (
        ("snapshot_timestamp_seconds", ""),
        ("consumer_heartbeat_timestamp_seconds", stream),
        ("host_sync_seconds_total", "stream_sync"),
        ("enqueue_blocked_seconds_total", stream),
    ):
        assert first[grows] < second[grows], grows
    assert second["host_sync_total", "stream_sync"] == 1


def test_stacks_and_the_verdict_name_the_line(stuck):
    client, _, _, _ = stuck
    waiting(client, 2)

    [stacks] = client.get("/api/v1/stacks").json()
    assert {wait["reason"] for wait in stacks["host_waits"]} == {
        "stream_sync",
        "full_queue",
    }
    [process] = client.get("/api/v1/snapshot").json()["processes"]
    assert process["verdict"]["kind"] == "hung"
    longest = stacks["host_waits"][0]["at"].rpartition("/")[2]
    assert process["verdict"]["text"].endswith(f"the host waits at {longest}")


def test_a_wait_that_ended_is_no_longer_shown_but_counted(stuck):
    client, program, _, reader = stuck
    program.say("on")
    [drain] = waiting(client, 1, "raw_handle")["waiting"]
    assert drain["at"].endswith(":26 in <module>")
    program.say("on")
    assert program.line() == "released"

    process = waiting(client, 0)

    assert reader.open_waits() == []
    by_line = {line["at"].rpartition("/")[2]: line for line in process["lines"]}
    assert by_line["<string>:12 in fill"]["reason"] == "full_queue"
    assert by_line["<string>:22 in <module>"]["count"] == 1
    # Taking a drained handle is a wait of its own kind.
    assert process["syncs"]["raw_handle"]["count"] == 1
