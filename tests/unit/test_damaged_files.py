"""Readers of other processes' files, given what no process would write.

`make torture` does this for as long as there is time, with files of processes that
have done more (tests/torture/damaged_files.py).
"""

from __future__ import annotations

import os
import pickle
import random
import struct
import tracemalloc
from pathlib import Path

import pytest
import torch
from hypothesis import given, strategies as st

from npu_dispatch import _C
from npu_dispatch.observe.judge import flight_recorder
from npu_dispatch.observe.trace.trace_file import trace_path
from tests.torture.damaged_files import attempt, mutated, shuffled

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
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("damaged") / "9"


@pytest.mark.parametrize("kind", ["segment", "watched", "trace", "dump"])
def test_a_file_is_read_or_refused(kind: str, originals, file: Path):
    assert attempt(kind, file, originals[kind]) == ""

    @given(st.randoms(use_true_random=False))
    def refuses(rng: random.Random) -> None:
        assert attempt(kind, file, mutated(originals[kind], rng)) == ""

    refuses()


def test_a_dump_of_other_types_is_read_or_refused(originals, file: Path):
    @given(st.randoms(use_true_random=False))
    def refuses(rng: random.Random) -> None:
        assert attempt("dump", file, shuffled(originals["dump"], rng)) == ""

    refuses()


@pytest.mark.parametrize(
    "entry",
    [
        pickle.EMPTY_DICT + pickle.LONG_BINPUT + struct.pack("<I", 100 << 20),
        pickle.BYTEARRAY8 + struct.pack("<Q", 100 << 20),
    ],
    ids=["memo", "bytearray"],
)
def test_a_dump_that_names_a_large_size_takes_no_memory_for_it(file: Path, entry):
    file.write_bytes(pickle.PROTO + b"\x05" + entry + pickle.STOP)

    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="not a flight recorder's dump"):
            flight_recorder.load(file)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 1 << 20
