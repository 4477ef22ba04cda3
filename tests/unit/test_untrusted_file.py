"""Files that other processes write are not trusted: they hang and kill nobody.

`make torture` damages files for as long as there is time (tests/torture).
"""

import os
import pickle
import random
import struct
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st
from missing import need_module

from npu_dispatch import _C
from npu_dispatch.observe.judge import flight_recorder
from npu_dispatch.observe.judge.flight_recorder import load
from npu_dispatch.observe.segment import StatsError, StatsReader
from npu_dispatch.observe.segment.collectives import read_log
from npu_dispatch.observe.segment.layout import COLLECTIVES_VERSION, HEADER, OFFSETS
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.untrusted_file import (
    UnsafeFileError,
    UntrustedFile,
    open_untrusted,
)
from npu_dispatch.observe.serve.endpoints import ask_launch_blocking
from npu_dispatch.observe.trace.trace_file import (
    RECORD,
    TraceError,
    TraceFile,
    trace_path,
)
from tests.torture.damaged_files import attempt, mutated, shuffled
from tests.torture.guided import KINDS, campaign

EVERYBODY_WRITES = 0o666
HUGE = 1 << 40  # the size of a file that takes no memory
MANY = 1 << 20
PAGE = 4096


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "1"
    path.write_bytes(b"x" * 8192)
    return path


# What becomes of a file, by what somebody else does.
PLANTS: dict[str, Callable[[Path], object]] = {
    "fifo": lambda path: (path.unlink(), os.mkfifo(path)),
    "link": lambda path: (path.rename(path.parent / "x"), path.symlink_to("x")),
    "folder": lambda path: (path.unlink(), path.mkdir()),
    "writable": lambda path: path.chmod(EVERYBODY_WRITES),
    "folder writable": lambda path: path.parent.chmod(0o777),
    "given away": lambda path: os.chown(path, 4711, -1),
    "folder given away": lambda path: os.chown(path.parent, 4711, -1),
}
READERS = {
    "segment": (StatsReader, (StatsError, OSError)),
    "trace": (TraceFile, TraceError),
    "words": (lambda path: open_untrusted(path, writable=True), OSError),
    "control": (lambda path: ask_launch_blocking([path], True), (StatsError, OSError)),
}


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize(("read", "error"), READERS.values(), ids=READERS)
def test_what_no_process_of_ours_made_is_refused(file: Path, plant, read, error):
    if "away" in plant and os.geteuid():
        pytest.skip("only root gives files away")
    PLANTS[plant](file)
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    with pytest.raises(error):
        read(file)

    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_another_users_file_is_read_if_it_is_asked_for_and_in_their_folder(file: Path):
    if os.geteuid():
        pytest.skip("only root gives files away")
    os.chown(file, 12345, -1)
    with pytest.raises(UnsafeFileError, match="belongs to user 12345"):
        UntrustedFile(file, any_user=True)  # in a folder of root's
    os.chown(file.parent, 12345, -1)
    with pytest.raises(UnsafeFileError, match="belongs to user 12345"):
        UntrustedFile(file)

    theirs = UntrustedFile(file, any_user=True)
    assert theirs.read(0, 1) == b"x"
    assert theirs.owner == 12345
    theirs.close()
    os.chown(file, 7, -1)
    with pytest.raises(UnsafeFileError, match="belongs to user 7"):
        UntrustedFile(file, any_user=True)


def test_a_plain_file_is_read_and_written(file: Path):
    mine = UntrustedFile(file, writable=True)
    mine.write(100, b"abc")

    assert mine.read(99, 5) == b"xabcx"
    mine.close()
    mine.close()


def test_a_write_makes_no_file_longer(file: Path):
    mine = UntrustedFile(file, writable=True)

    with pytest.raises(UnsafeFileError):
        mine.write(8190, b"abc")
    assert file.stat().st_size == 8192


def test_a_segment_that_is_cut_short_is_an_error(tmp_path: Path):
    copy = tmp_path / "1"
    copy.write_bytes(Path(_C.segment_path()).read_bytes())
    with StatsReader(copy) as reader:
        reader.devices()
        os.truncate(copy, 4096)

        with pytest.raises(StatsError, match="expected"):
            reader.devices()
        with pytest.raises(StatsError, match="expected"):
            reader.streams()


def test_a_log_that_is_torn_ends_no_reader_of_all(monkeypatch: pytest.MonkeyPatch):
    def torn(reader: StatsReader) -> None:
        raise StatsError(f"{reader.path}: torn")

    torch.npu.init()
    monkeypatch.setattr(StatsReader, "collectives", torn)

    assert flight_recorder.from_segments() == []


def own_trace() -> bytearray:
    torch.ones(1, device="npu")  # a process that uses the device has a trace file
    return bytearray(trace_path(os.getpid()).read_bytes())


def test_a_trace_that_is_cut_short_is_an_error(file: Path):
    file.write_bytes(own_trace())
    with TraceFile(file) as trace:
        os.truncate(file, 10)

        with pytest.raises(TraceError, match="expected"):
            trace.read()
        with pytest.raises(TraceError, match="expected"):
            trace.wanted = True


# It was read as that many names of no letters, whatever memory they took.
def test_a_trace_that_claims_more_names_than_there_can_be_is_an_error(file: Path):
    damaged = own_trace()
    names_at, kept = struct.unpack_from("<II", damaged, 80)  # csrc/observe/trace.h
    struct.pack_into("<I", damaged, 92, kept)
    file.write_bytes(damaged)
    with TraceFile(file) as trace:
        assert trace.names()
    struct.pack_into("<I", damaged, 92, len(damaged) - names_at)
    file.write_bytes(damaged)

    with TraceFile(file) as trace, pytest.raises(TraceError, match="names"):
        trace.names()


@pytest.mark.parametrize(
    ("what", "counts"),
    {"devices": (MANY, 1, 1), "streams": (1, MANY, 1), "names": (1, 1, MANY)}.items(),
)
def test_a_segment_claims_no_more_than_the_layout_has(file: Path, what, counts):
    devices, streams, names = counts
    head = HEADER.struct.unpack_from(Path(_C.segment_path()).read_bytes())
    fields = [*head[:4], devices, head[5], streams, head[7], names, *head[9:]]
    file.write_bytes(HEADER.struct.pack(*fields))
    os.truncate(file, HUGE)

    with pytest.raises(StatsError, match=f"{what}, found {MANY}"):
        StatsReader(file)


@pytest.mark.parametrize("counts", [(MANY, 1), (1, MANY)], ids=["rings", "records"])
def test_a_trace_claims_no_more_than_the_layout_has(file: Path, counts):
    damaged = own_trace()[:PAGE]
    ring = counts[1] * RECORD.itemsize + 64
    struct.pack_into("<2I2Q", damaged, 56, *counts, PAGE, ring)
    file.write_bytes(damaged)
    os.truncate(file, HUGE)

    with pytest.raises(TraceError, match="not a trace file"):
        TraceFile(file)


@pytest.mark.parametrize("counts", [(MANY, 1), (1, MANY)], ids=["calls", "groups"])
def test_a_log_of_collectives_claims_no_more_than_it_has_room_for(counts):
    entry = OFFSETS["CollectiveEntry.size"], OFFSETS["CollectiveGroup.size"]
    head = (COLLECTIVES_VERSION, entry[0], counts[0], entry[1], counts[1])
    asked = []

    def read(_: int, size: int) -> bytes:
        asked.append(size)
        return struct.pack("<8Q", *head, 0, 0, 0).ljust(size, b"\0")

    assert read_log(HUGE, read, str) is None
    assert max(asked) == 64


def test_a_group_has_no_more_ranks_than_there_can_be():
    ranks = ",".join(["0-65534"] * 90).encode()
    group = struct.pack("<3Q64s64s40s832s", 1, 0, 0, b"g", b"", b"t", ranks)
    head = (COLLECTIVES_VERSION, 448, 1024, len(group), 128, 0, 0, 0)
    pieces = {64: struct.pack("<8Q", *head), 128 * len(group): group * 128}

    log = read_log(HUGE, lambda _, size: pieces.get(size, bytes(size)), str)

    assert log is not None
    assert len(log.groups[0].ranks) == 1 << 16


def test_a_dump_larger_than_any_of_ours_is_an_error(file: Path):
    os.truncate(file, 1 << 30)

    with pytest.raises(ValueError, match="1073741824 bytes"):
        load(file)


def test_a_planted_file_hides_no_process(tmp_path: Path):
    living = tmp_path / Path(_C.segment_path()).name
    living.write_bytes(Path(_C.segment_path()).read_bytes())
    os.mkfifo(tmp_path / "1")
    (tmp_path / "2").write_bytes(b"short")

    with Processes(directory=tmp_path) as processes:
        [view] = processes.refresh()
        assert view.info.pid == os.getpid()
        first, second = processes.unreadable
        assert first.startswith(f"{tmp_path / '1'}: not a plain file")
        assert second.startswith(f"{tmp_path / '2'}: too short")


def test_reading_takes_no_memory_of_the_file_system():
    """A read of a mapped hole does; where there is none, it kills the reader."""
    segment = Path(_C.segment_path())
    before = segment.stat().st_blocks
    with StatsReader(segment) as reader:
        reader.streams()
        reader.devices()
        reader.ops()
        reader.open_waits()
        reader.waits_by_site()

    assert segment.stat().st_blocks == before


CALL = {
    "collective_seq_id": 3, "p2p_seq_id": 0, "op_id": 3, "is_p2p": False,
    "profiling_name": "hccl:all_reduce", "process_group": ("0", "default"),
    "time_created_ns": 5, "time_discovered_started_ns": 6,
    "time_discovered_completed_ns": None, "input_sizes": [[4]],
    "input_dtypes": ["Float"], "output_sizes": [[4]], "output_dtypes": ["Float"],
    "state": "started", "retired": False, "timeout_ms": 1000, "frames": [],
    "record_id": 0, "pg_id": 0,
}  # fmt: skip
GROUP = {"name": "0", "desc": "default", "ranks": "[0, 1]"}


@pytest.fixture(scope="module")
def originals(tmp_path_factory) -> dict[str, bytes]:
    x = torch.ones(4, device="npu")
    for _ in range(50):
        x = x + 1
    x.sum().item()
    with trace_path(os.getpid()).open("rb") as trace:
        beginning = trace.read(1 << 19)
    segment = Path(_C.segment_path()).read_bytes()
    dump = {
        "version": "2.10", "pg_config": {"0": GROUP}, "pg_status": {},
        "entries": [CALL], "rank": 0,
    }  # fmt: skip
    return {
        "segment": segment, "watched": segment, "trace": beginning,
        "dump": pickle.dumps(dump),
    }  # fmt: skip


@pytest.fixture(scope="module")
def damaged_file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "9"


@pytest.mark.parametrize(
    ("kind", "damaged"),
    [
        *((kind, mutated) for kind in ("segment", "watched", "trace", "dump")),
        ("dump", shuffled),  # values of other types
    ],
)
def test_a_file_is_read_or_refused(kind: str, damaged, originals, damaged_file: Path):
    assert attempt(kind, damaged_file, originals[kind]) == ""

    @given(st.randoms(use_true_random=False))
    def refuses(rng: random.Random) -> None:
        assert attempt(kind, damaged_file, damaged(originals[kind], rng)) == ""

    refuses()


@pytest.mark.parametrize(
    "entry",
    [
        pickle.EMPTY_DICT + pickle.LONG_BINPUT + struct.pack("<I", 100 << 20),
        pickle.BYTEARRAY8 + struct.pack("<Q", 100 << 20),
    ],
    ids=["memo", "bytearray"],
)
def test_a_large_size_in_a_dump_takes_no_memory(damaged_file: Path, entry):
    damaged_file.write_bytes(pickle.PROTO + b"\x05" + entry + pickle.STOP)

    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="not a flight recorder's dump"):
            flight_recorder.load(damaged_file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20


SECONDS = 60
SEED = int(os.environ.get("NPU_TEST_SEED", "0"))
CORPUS = Path(__file__).resolve().parents[2] / "out" / "guided"  # of all nights


@pytest.mark.nightly
@pytest.mark.parametrize("kind", KINDS)
def test_no_file_ends_a_reader(kind: str):
    need_module("atheris")
    told = campaign(kind, SECONDS, SEED % (1 << 31), CORPUS / kind)

    assert told["findings"] == []
    assert told["executions"] > 100
