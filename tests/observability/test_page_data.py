"""What the service keeps for the page: the past, and who was killed."""

from __future__ import annotations

import asyncio
import json

import pytest
from starlette.requests import Request

from npu_dispatch.observe.judge.describe import Killed
from npu_dispatch.observe.judge.rates import Reading
from npu_dispatch.observe.segment.folders import SUFFIX
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.serve.endpoints import Endpoints
from npu_dispatch.observe.serve.options import ServiceConfig
from npu_dispatch.observe.serve.snapshot import process_values
from npu_dispatch.observe.serve.watcher import Watcher

SECOND = 10**9


def test_a_trend_has_the_waits_that_are_and_the_busiest_stream(write_segment, ghost):
    fields = {("StreamBlock.tail", 0): 5, ("StreamBlock.tail", 1): 9}
    with Processes(directory=write_segment(ghost, fields, streams=2)) as processes:
        [before] = processes.refresh()
    first, second = before.streams
    later = (
        first._replace(stats=first.stats._replace(full_wait_ns=SECOND // 4)),
        second._replace(stats=second.stats._replace(alive_ns=SECOND // 2)),
    )
    now = before._replace(tick=before.tick + 1, streams=later)
    trend = process_values(Reading(before), Reading(now), 10.0)["trend"]

    assert trend["waits"] == {"full_queue": pytest.approx(0.25)}
    assert trend["device"] == {"busy": pytest.approx(0.5), "held": 0, "starved": 0}
    assert trend["depths"] == {"0:0": 4, "0:1": 8}


def test_who_was_killed_is_remembered_with_its_name(write_segment, ghost):
    folder = write_segment(ghost, {}, rank="3", command=b"python\0train.py")
    (folder / str(ghost)).rename(folder / f"{ghost}{SUFFIX}")
    killed = Killed(Processes(directory=folder))

    [found] = killed.look()
    (folder / f"{ghost}{SUFFIX}").unlink()

    assert (found["pid"], found["name"], found["rank"]) == (ghost, "train.py", "3")
    assert killed.look() == [found]
    other = Processes(directory=folder, pid=ghost + 1)
    assert Killed(other).look() == []


def test_all_who_ask_for_the_snapshot_get_the_same_bytes(write_segment, ghost):
    config = ServiceConfig(directory=write_segment(ghost, {}), interval=3600)

    async def ask() -> tuple[bytes, bytes]:
        watcher = Watcher(config)
        answer = await Endpoints(config, watcher).snapshot(Request({"type": "http"}))
        events = watcher.events()
        await anext(events)
        _, newest = await anext(events)
        await watcher.close()
        return bytes(answer.body), newest

    answer, newest = asyncio.run(ask())

    assert answer == newest
    assert json.loads(answer)["processes"][0]["pid"] == ghost


def test_a_listener_gets_the_past_then_the_present(write_segment, ghost):
    folder = write_segment(ghost, {})

    async def listen() -> list[tuple[str, bytes]]:
        watcher = Watcher(ServiceConfig(directory=folder, interval=0.01))
        while len(watcher._history) < 2:  # the second point is a second later
            await watcher.ready()
            await asyncio.sleep(0.01)
        events = watcher.events()
        found = [await anext(events), await anext(events), await anext(events)]
        await watcher.close()
        return found

    past, now, next_ = asyncio.run(listen())

    assert [name for name, _ in (past, now, next_)] == ["history", *["snapshot"] * 2]
    points = json.loads(past[1])
    newest, later = json.loads(now[1]), json.loads(next_[1])
    assert points[0]["tick"] < newest["tick"] < later["tick"]
    assert set(points[0]["processes"][0]) == {"id", "pid", "trend"}
    assert newest["processes"][0]["pid"] == ghost
    assert newest["interval"] == 0.01
