"""Small programs, right and wrong, and exactly what the sanitizer says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from race_programs import load_programs, marked, program_name
from sanitizer_off import sanitizer_off

from npu_dispatch.npu import _sanitizer
from npu_dispatch.sanitizer import Report

pytestmark = pytest.mark.npu_races("half of the programs do")

PROGRAMS = Path(__file__).parent / "programs"


ALL = load_programs(PROGRAMS)
RACY = [p for p in ALL if p.__name__.startswith("racy_")]
CORRECT = [p for p in ALL if p.__name__.startswith("correct_")]


@pytest.fixture(autouse=True)
def sanitizer():
    with sanitizer_off():
        torch.npu.empty_cache()
        yield


def found_by(program: Callable[[], object]) -> list[Report]:
    _sanitizer.enable_npu_sanitizer("report")
    kept = program()
    torch.npu.synchronize()
    del kept
    return _sanitizer.reports()


def test_the_corpus_is_large_enough_to_mean_something():
    assert len(RACY) + len(CORRECT) >= 60
    assert len(CORRECT) >= 30


@pytest.mark.parametrize("program", RACY, ids=program_name)
def test_a_racy_program_is_found_at_its_two_lines(program):
    [report] = found_by(program)

    assert report.kind == program.__doc__
    for side, access in (("first", report.first), ("second", report.second)):
        line, names = marked(program, side)
        assert access.where is not None
        assert access.where.line == line and access.op in names, side


@pytest.mark.parametrize("program", CORRECT, ids=program_name)
def test_a_correct_program_gives_no_report(program):
    assert [report.text() for report in found_by(program)] == []


@pytest.mark.parametrize("program", RACY, ids=program_name)
def test_a_racy_program_is_stopped_at_its_second_line(program):
    _sanitizer.enable_npu_sanitizer("raise")

    with pytest.raises(_sanitizer.NPUSanitizerErrors) as raised:
        program()

    [report] = raised.value.errors
    assert report.kind == program.__doc__
    inside = [t for t in raised.traceback if t.path.parent == PROGRAMS]
    assert inside[-1].lineno + 1 == marked(program, "second")[0]
