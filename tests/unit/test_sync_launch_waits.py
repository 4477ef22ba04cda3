"""A stream without a queue makes its caller wait; that wait is a host wait."""

from __future__ import annotations

import pytest
import torch
from held_stream import held_stream
from open_waits import released_when_waiting


@pytest.fixture
def held():
    with held_stream(torch.ones(2).npu()) as stream_and_gate:
        yield stream_and_gate


WAITS = {
    "wait_stream": lambda direct, stream: direct.wait_stream(stream),
    "wait_event": lambda direct, stream: direct.wait_event(stream.record_event()),
}


@pytest.mark.parametrize("name", WAITS)
def test_the_work_waited_for_may_need_the_interpreter(held, name):
    stream, gate = held
    direct = torch.npu.SyncLaunchStream()
    with released_when_waiting("event_sync", gate):
        WAITS[name](direct, stream)

    assert gate.is_set()
    assert stream.query()


@pytest.mark.parametrize("name", WAITS)
def test_a_guard_refuses_the_wait(held, name):
    stream, gate = held
    direct = torch.npu.SyncLaunchStream()

    with (
        torch.npu.sync_guard("error", explicit=True),
        pytest.raises(torch.npu.HostSyncError, match="a SyncLaunchStream's wait"),
    ):
        WAITS[name](direct, stream)

    assert not gate.is_set()
    assert not stream.query()


def test_the_report_has_the_wait(held):
    stream, gate = held
    torch.npu.reset_sync_report()
    with released_when_waiting("event_sync", gate):
        torch.npu.SyncLaunchStream().wait_stream(stream)

    [site] = torch.npu.sync_report()
    assert site.reason == "event_sync"
    assert "test_the_report_has_the_wait" in site.where


def test_what_is_done_is_not_waited_for():
    stream = torch.npu.Stream()
    stream.synchronize()
    with torch.npu.sync_guard("error", explicit=True):
        torch.npu.SyncLaunchStream().wait_stream(stream)
