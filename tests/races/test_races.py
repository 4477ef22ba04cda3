"""Small programs, right and wrong, and exactly what the sanitizer says."""

import traceback
from collections.abc import Callable

import pytest
import torch
from sanitizer_off import sanitizer_off

from npu_dispatch.npu import _sanitizer
from npu_dispatch.sanitizer import Report
from tests.races.programs import FILE, NAMES, RIGHT, TABLES, Program

pytestmark = pytest.mark.npu_races("half of the programs do")


def stopped(program: Callable[[], object]) -> tuple[list[Report], int]:
    """Return what the sanitizer found, and the line of the text at which it stopped."""
    with sanitizer_off():
        torch.npu.empty_cache()
        _sanitizer.enable_npu_sanitizer("raise")
        try:
            kept = program()
            torch.npu.synchronize()
            del kept
        except _sanitizer.NPUSanitizerErrors as error:
            inside = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in inside if frame.filename == FILE]
            return error.errors, lines[-1] if lines else 0
        return _sanitizer.reports(), 0


def told(program: Program) -> list[tuple[str, int, int, int]]:
    """Return kind and lines of each report, and where the program was stopped."""

    def run() -> object:
        names = dict(NAMES)
        exec(compile(program.text, FILE, "exec"), names)
        return names

    reports, line = stopped(run)
    for report in reports:
        for side, access in (("first", report.first), ("second", report.second)):
            assert access.op in program.called(side), (program.text, report.text())
    return [(r.kind, r.first.where.line, r.second.where.line, line) for r in reports]


@pytest.mark.parametrize("table", TABLES)
def test_a_racy_program_is_stopped_at_its_second_line_and_no_other_is(table):
    wrong = []
    for program in TABLES[table]:
        lines = [program.line(side) for side in ("first", "second")]
        expected = [(program.kind, *lines, lines[1])] if program.kind else []
        if (found := told(program)) != expected:
            wrong.append(f"{program.text}: {found}, expected {expected}")
    assert not wrong, "\n".join(wrong)


def test_right_programs_of_other_forms_give_no_report():
    wrong = [
        (program.__name__, report.text())
        for program in RIGHT
        for report in stopped(program)[0]
    ]
    assert not wrong, wrong
