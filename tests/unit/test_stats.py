"""npu_dispatch.observe.segment, against segments written by hand and by the engine."""

import itertools
import math
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from npu_dispatch import _C
from npu_dispatch.observe import segment as stats
from npu_dispatch.observe.judge.summary import Watch
from npu_dispatch.observe.segment import StatsReader, layout, system
from npu_dispatch.observe.segment.layout import LAYOUT_VERSION, OFFSETS
from npu_dispatch.observe.segment.values import Histogram

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


COUNTS = {
    "Exemplars.size": layout.EXEMPLAR_OCTAVES * layout.EXEMPLAR.size,
    "kLayoutVersion": layout.LAYOUT_VERSION,
    "kCollectiveLogVersion": layout.COLLECTIVES_VERSION,
    "kExtensionAt": layout.EXTENSION_AT,
    "kDepthBuckets": layout.DEPTH_BUCKETS,
    "kTimeBuckets": layout.TIME_BUCKETS,
    "kSamplePeriod": layout.SAMPLE_PERIOD,
    "kMaxNames": layout.NAMES,
    "kMaxSites": layout.SITES,
    "kMaxOpenWaits": layout.OPEN_WAITS,
    "kRecentTasks": layout.RECENT_TASKS,
    "kExemplarOctaves": layout.EXEMPLAR_OCTAVES,
    "kWaitReasons": len(layout.WAIT_REASONS),
    "kErrorCodes": len(layout.ERROR_CODES),
    "kReportKinds": len(layout.REPORT_KINDS),
    "kBypasses": len(layout.BYPASSES),
    "kHolds": len(layout.HOLDS),
    "kWorks": len(layout.WORKS),
    "kCaptureFailures": len(layout.CAPTURE_FAILURES),
}


def test_offsets_sizes_counts_and_versions_are_those_of_the_engine():
    assert OFFSETS | COUNTS | _C.segment_layout() == OFFSETS | COUNTS
    assert _C.segment_layout().keys() >= COUNTS.keys()


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

    assert stream.depth == depth


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
    assert device.wait_ns[layout.WAIT_REASONS[1]] == 1234


def test_refuses_a_newer_layout_and_names_both_versions(write_segment):
    path = write_segment(version=LAYOUT_VERSION + 1)

    versions = f"expected layout {LAYOUT_VERSION}, found {LAYOUT_VERSION + 1}"
    with pytest.raises(stats.StatsError, match=versions):
        StatsReader(path)


@pytest.mark.parametrize("data", [b"", b"short", b"x" * 4096])
def test_refuses_another_file(tmp_path: Path, data: bytes):
    path = tmp_path / "other"
    path.write_bytes(data)

    with pytest.raises(stats.StatsError):
        StatsReader(path)


@given(st.lists(st.integers(0, 2**40), min_size=1), st.floats(0.0, 1.0))
def test_a_percentile_is_within_its_power_of_two(values: list[int], q: float):
    buckets = [0] * 48
    for value in values:
        buckets[value.bit_length()] += 1
    histogram = Histogram(len(values), sum(values), tuple(buckets))

    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    low = 2 ** exact.bit_length() // 2

    assert low <= histogram.percentile(q) <= 2 * low


def test_histograms_add_up():
    one, two = Histogram(1, 1, (0, 1)), Histogram(2, 1, (1, 1))

    assert one + two == Histogram(3, 2, (1, 2))


def is_sampled(task: int) -> bool:
    """Return what is_sampled() of csrc/stats/layout.h does."""
    return task * 0x9E3779B9 % 2**32 < 2**32 // layout.SAMPLE_PERIOD


def test_the_engine_counts_launches_and_memory():
    a = torch.ones(8, device="npu")
    # A task is counted before the next one begins, but after waits for it end:
    # the last one here and the last one below are not sampled.
    while any(is_sampled(_C.stream_tail(0, 0) + n) for n in (-1, 31)):
        a.add_(1)
    first = _C.stream_tail(0, 0)
    torch.npu.synchronize()
    with StatsReader(stats.segment_file()) as reader:
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
        before = Watch().figures()["launches"]
        with torch.npu.stream(stream):
            for _ in range(5):
                a.add_(1)
        torch.npu.synchronize()
        assert Watch().figures()["launches"] == before + 5


S = 10**9
DAY_NS = 86_400 * S
START_NS = 1_700_000_000 * S


class Machine:
    """Two clocks that go on by 50 ns at each reading, and at times stop for long."""

    def __init__(self, stops: Iterator[int]) -> None:
        self.stops = stops
        self.uptime_ns = DAY_NS
        self.offset_ns = START_NS

    def monotonic_ns(self) -> int:
        self.uptime_ns += 50 + next(self.stops)
        return self.uptime_ns

    def time_ns(self) -> int:
        return self.monotonic_ns() + self.offset_ns


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    # The scheduler takes the processor away for 8 ms at every seventh reading.
    machine = Machine(itertools.cycle((0, 0, 8_000_000, 0, 0, 0, 3)))
    monkeypatch.setattr(time, "monotonic_ns", machine.monotonic_ns)
    monkeypatch.setattr(time, "time_ns", machine.time_ns)
    monkeypatch.setattr(system, "_known_ns", None)
    return machine


def test_a_moment_has_one_date_however_late_a_thread_reads_the_clocks(machine: Machine):
    dates = {system.unix_ns(5 * S) for _ in range(100)}

    assert len(dates) == 1
    assert abs(dates.pop() - (START_NS + 5 * S)) < 1000


@pytest.mark.parametrize("step", [5 * S, -5 * S, 2_000_000])
def test_it_follows_a_date_that_is_set_at_once(machine: Machine, step: int):
    before = system.unix_offset_ns()
    machine.offset_ns += step

    assert abs(system.unix_offset_ns() - before - step) < 1000


def test_it_is_the_offset_of_this_machines_clocks():
    # Read before and after: the date of now lies between.
    before = time.time_ns()
    now = system.unix_ns(time.monotonic_ns())
    assert before - 1_000_000 <= now <= time.time_ns() + 1_000_000


CALLS = 640


def calls_of(stream: torch.npu.Stream) -> tuple[int, int]:
    """Return how many tasks a stream was given, and how many calls were timed."""
    with StatsReader(Path(_C.segment_path())) as reader:
        [found] = [s for s in reader.streams() if s.stream == stream.stream_id]
    assert found.call_ns.sum >= found.call_ns.count
    return found.submitted, found.call_ns.count


def timed_calls(raises: Callable[[int], bool]) -> tuple[int, range]:
    """Return how many of the calls on a stream are timed, and their positions there.

    One that raises comes after the call at position n where raises(n), and before the
    first: so it is the next call of this thread after whatever was launched before.
    """
    x, wrong = torch.ones(8, device="npu"), torch.ones(3, device="npu")
    stream = torch.npu.Stream()
    first, before = calls_of(stream)  # streams are used again
    positions = range(first, first + CALLS)
    with torch.npu.stream(stream):
        for n in (-1, *positions):
            if n >= 0:
                x.add_(1)
            if n < 0 or raises(n):
                with pytest.raises(RuntimeError, match="size"):
                    x.add_(wrong)
        stream.synchronize()
    submitted, timed = calls_of(stream)
    assert submitted == first + CALLS
    return timed - before, positions


def test_the_call_after_each_sampled_task_is_timed_from_its_entry():
    timed, positions = timed_calls(lambda _: False)

    assert timed == sum(is_sampled(n) for n in positions[:-1])


def test_a_call_that_raises_is_not_timed_and_neither_is_the_one_after_it():
    timed, _ = timed_calls(is_sampled)

    assert timed == 0
