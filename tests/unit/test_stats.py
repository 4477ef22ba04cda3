"""npu_dispatch.observe.segment, against segments written by hand and by the engine."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from npu_dispatch import _C
from npu_dispatch.observe.judge.summary import Watch
from npu_dispatch.observe.segment import (
    LAYOUT_VERSION,
    OFFSETS,
    SAMPLE_PERIOD,
    WAIT_REASONS,
    Histogram,
    StatsError,
    StatsReader,
    segment_file,
)

DEVICES, STREAMS = 2, 3
DEVICES_AT = OFFSETS["Segment.devices"]
STREAMS_AT = -(-(DEVICES_AT + 2 * OFFSETS["DeviceBlock.size"]) // 64) * 64


@pytest.fixture
def write_segment(tmp_path: Path):
    def write(*fields: tuple[int, int], version: int = LAYOUT_VERSION) -> Path:
        """Write a segment with 64-bit words at the given places."""
        device, stream = OFFSETS["DeviceBlock.size"], OFFSETS["StreamBlock.size"]
        sizes = (version, DEVICES_AT, device, DEVICES, stream, STREAMS, 42, 0)
        data = bytearray(STREAMS_AT + STREAMS * stream)
        struct.pack_into("<8s8I4Q", data, 0, b"NPUSTATS", *sizes, 7, 8, 9, 10)
        for at, word in fields:
            struct.pack_into("<Q", data, at, word)
        path = tmp_path / "segment"
        path.write_bytes(data)
        return path

    return write


def in_stream(name: str, index: int = 0) -> int:
    block = STREAMS_AT + index * OFFSETS["StreamBlock.size"]
    return block + OFFSETS[f"StreamBlock.{name}"]


def test_offsets_are_those_of_the_engine():
    layout = _C.segment_layout()

    assert {name: layout.get(name) for name in OFFSETS} == OFFSETS


def test_layout_version_is_the_engines():
    assert _C.segment_layout()["kLayoutVersion"] == LAYOUT_VERSION


@pytest.mark.parametrize(
    ("submitted", "retired", "depth"),
    [(0, 0, 0), (7, 3, 4), pytest.param(3, 4, 0, id="torn-read")],
)
def test_depth_is_the_work_still_queued(write_segment, submitted, retired, depth):
    path = write_segment(
        (in_stream("state"), 1),
        (in_stream("tail"), submitted),
        (in_stream("retired"), retired),
    )

    with StatsReader(path) as reader:
        [stream] = reader.streams()
        whole = reader.depth()

    assert (stream.depth, whole) == (depth, depth)


def test_unused_streams_and_devices_are_left_out(write_segment):
    with StatsReader(write_segment()) as reader:
        assert reader.streams() == []
        assert reader.devices() == []


def test_header_names_the_process(write_segment):
    with StatsReader(write_segment()) as reader:
        info = reader.info

    assert (info.pid, info.process_start, info.monotonic_ns) == (42, 7, 8)


def test_device_waits_are_named(write_segment):
    at = DEVICES_AT + OFFSETS["DeviceBlock.size"] + OFFSETS["DeviceBlock.wait_ns"]
    with StatsReader(write_segment((at + 8, 1234))) as reader:
        [device] = reader.devices()

    assert device.device == 1
    assert device.wait_ns[WAIT_REASONS[1]] == 1234


def test_refuses_a_newer_layout_and_names_both_versions(write_segment):
    path = write_segment(version=LAYOUT_VERSION + 1)

    versions = f"expected layout {LAYOUT_VERSION}, found {LAYOUT_VERSION + 1}"
    with pytest.raises(StatsError, match=versions):
        StatsReader(path)


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 4096])
def test_refuses_another_file(tmp_path: Path, data: bytes):
    path = tmp_path / "other"
    path.write_bytes(data)

    with pytest.raises(StatsError):
        StatsReader(path)


@given(st.lists(st.integers(0, 2**40), min_size=1), st.floats(0.0, 1.0))
def test_a_percentile_is_within_its_power_of_two(values: list[int], q: float):
    buckets = [0] * 48
    for value in values:
        buckets[value.bit_length()] += 1
    histogram = Histogram(len(values), sum(values), tuple(buckets))

    exact = sorted(values)[max(0, -(-int(q * len(values) * 2**20) // 2**20) - 1)]
    found = histogram.percentile(q)

    assert found <= 2 * sorted(values)[-1] + 1
    assert found >= (min(values) + 1) // 2 if min(values) else found >= 0
    assert exact <= 2 * max(values)


def test_histograms_add_up():
    one, two = Histogram(1, 1, (0, 1)), Histogram(2, 1, (1, 1))

    assert one + two == Histogram(3, 2, (1, 2))


def is_sampled(task: int) -> bool:
    """Return what is_sampled() of csrc/stats/layout.h does."""
    return task * 0x9E3779B9 % 2**32 < 2**32 // SAMPLE_PERIOD


def test_the_engine_counts_launches_and_memory():
    a = torch.ones(8, device="npu")
    # A task is counted before the next one begins, but after waits for it end:
    # the last one here and the last one below are not sampled.
    while any(is_sampled(_C.stream_tail(0, 0) + n) for n in (-1, 31)):
        a.add_(1)
    first = _C.stream_tail(0, 0)
    torch.npu.synchronize()
    with StatsReader(segment_file()) as reader:
        before = reader.streams()[0]

        for _ in range(32):
            a.add_(1)
        torch.npu.synchronize()

        after, [device, *_] = reader.streams()[0], reader.devices()
    assert after.submitted - before.submitted == 32
    assert after.retired == after.submitted
    sampled = sum(is_sampled(first + n) for n in range(32))
    assert after.latency_ns.count - before.latency_ns.count == sampled >= 1
    assert device.allocated == torch.npu.memory_allocated()


def test_the_summary_counts_a_launch_once_on_either_kind_of_stream():
    a = torch.ones(3, device="npu")
    for stream in (torch.npu.Stream(), torch.npu.SyncLaunchStream()):
        torch.npu.synchronize()
        before = Watch().figures().launches
        with torch.npu.stream(stream):
            for _ in range(5):
                a.add_(1)
        torch.npu.synchronize()
        assert Watch().figures().launches == before + 5
