"""torch_npu's error codes: there for its programs, and nowhere else."""

from __future__ import annotations

import re

import pytest

FAILURES = """
import sys
import npu_dispatch, torch
npu = torch.npu

def missing_row():
    torch.nn.functional.embedding(
        torch.tensor([9], device="npu"), torch.zeros(4, 2, device="npu")
    )
    npu.synchronize()

for call in (
    lambda: npu.set_dump("/no/such/file"),
    lambda: npu.caching_allocator_alloc("x"),
    lambda: npu.set_per_process_memory_fraction(7.0),
    lambda: npu.caching_allocator_alloc(-1),
    missing_row,
):
    try:
        call()
    except Exception as error:
        print(type(error).__name__, "|", str(error).replace(chr(10), "~"))
    npu.clear_error()
"""
LINE = re.compile(
    r"~\[ERROR\] \d{4}-\d\d-\d\d-\d\d:\d\d:\d\d "
    r"\(PID:\d+, Device:0, RankID:(-1|3)\) (ERR\d{5} PTA [a-z ]+)$"
)
ALIAS = {"NPU_DISPATCH_TORCH_NPU_ALIAS": "1"}
CODES = [
    "ERR00001 PTA invalid parameter",
    "ERR00002 PTA invalid type",
    "ERR00003 PTA invalid value",
    "ERR00001 PTA invalid parameter",
    "ERR00100 PTA call acl api failed",
]
CLASSES = ["AssertionError", "TypeError", "ValueError", "RuntimeError"]


@pytest.mark.parametrize("rank", [{}, {"RANK": "3"}])
def test_messages_for_torch_npus_programs_end_with_a_code(rank, python):
    lines = python(FAILURES, **ALIAS, **rank).stdout.splitlines()

    found = [LINE.search(line) for line in lines]
    assert [match and match[2] for match in found] == CODES
    assert {match[1] for match in found} == {rank.get("RANK", "-1")}
    assert [line.split(" | ")[0] for line in lines] == [*CLASSES, "DeviceIndexError"]


@pytest.mark.parametrize(
    "env",
    [{}, {**ALIAS, "TORCH_NPU_COMPACT_ERROR_OUTPUT": "1"}],
    ids=["without the alias", "compact"],
)
def test_otherwise_there_is_no_code(env, python):
    result = python(FAILURES, **env).stdout

    assert len(result.splitlines()) == len(CODES) and "ERR0" not in result


def test_there_is_no_code_in_an_interactive_interpreter(python):
    result = python("import sys; sys.ps1 = '> '\n" + FAILURES, **ALIAS).stdout

    assert len(result.splitlines()) == len(CODES) and "ERR0" not in result
