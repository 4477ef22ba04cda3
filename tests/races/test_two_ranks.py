"""Programs of two ranks, right and wrong, and exactly what the sanitizer says.

Where only one rank is at fault, the program's docstring says which.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interpreter import Forked, shared_zygote
from race_programs import load_programs, marked, program_name
from ranks import make_ranks

FOLDER = Path(__file__).parent / "two_ranks"
ALL = load_programs(FOLDER)
RACY = [p for p in ALL if p.__name__.startswith("racy_")]
CORRECT = [p for p in ALL if p.__name__.startswith("correct_")]
SECONDS = 60

RUN = """
import json, traceback
sys.path += {paths}
from race_programs import load_programs
from pathlib import Path
from npu_dispatch.npu import _sanitizer
join("hccl", seconds={seconds})
other = dist.new_group([0, 1])
told = {{}}
for program in load_programs(Path({folder!r})):
    program.__globals__["other"] = other
    _sanitizer.clear_reports()
    _sanitizer.enable_npu_sanitizer({mode!r})
    stopped = None
    try:
        kept = program()
    except _sanitizer.NPUSanitizerErrors as error:
        stopped = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                   if frame.filename.startswith({folder!r})][-1]
    torch.npu.synchronize()
    kept = None
    reports = [dict(kind=r.kind, text=r.text(), fix=r.suggestion,
                    first=[r.first.op, r.first.where.line],
                    second=[r.second.op, r.second.where.line])
               for r in _sanitizer.reports()]
    told[program.__name__] = dict(stopped=stopped, reports=reports)
    _sanitizer.disable_npu_sanitizer()
    dist.barrier()
    torch.npu.empty_cache()
print(json.dumps(told))
"""


def run_all(folder: Path, mode: str) -> list[dict[str, Any]]:
    """Return what each rank was told about each program."""
    paths = [str(Path(inspect.getfile(load_programs)).parent)]
    code = RUN.format(paths=paths, folder=str(FOLDER), mode=mode, seconds=SECONDS)
    return [
        json.loads(one.stdout)
        for one in make_ranks(Forked(folder, shared_zygote()), folder)(code)
    ]


@pytest.fixture(scope="module")
def reported(tmp_path_factory):
    return run_all(tmp_path_factory.mktemp("ranks"), "report")


@pytest.fixture(scope="module")
def raised(tmp_path_factory):
    return run_all(tmp_path_factory.mktemp("ranks"), "raise")


def kind_of(program: Callable[[], object]) -> str:
    return str(program.__doc__).partition(" ")[0]


def ranks_of(program: Callable[[], object]) -> list[int]:
    """Return the ranks that find it."""
    only = re.search(r"on rank (\d)", str(program.__doc__))
    return [int(only[1])] if only else [0, 1]


def test_the_corpus_is_large_enough_to_mean_something():
    assert len(RACY) >= 20
    assert len(CORRECT) >= 20


@pytest.mark.parametrize("program", RACY, ids=program_name)
def test_a_racy_program_is_found_at_its_two_lines(reported, program):
    for rank, told in enumerate(reported):
        reports = told[program.__name__]["reports"]
        if rank not in ranks_of(program):
            assert reports == []
            continue
        [report] = reports
        assert report["kind"] == kind_of(program)
        for side in ("first", "second"):
            line, names = marked(program, side)
            op, found = report[side]
            assert found == line and op in names, report["text"]


@pytest.mark.parametrize("program", RACY, ids=program_name)
def test_the_fix_is_a_call_that_the_program_can_make(reported, program):
    line, _ = marked(program, "first")
    source = Path(inspect.getfile(program)).read_text().splitlines()[line - 1]
    returns_work = re.search(r"async_op=True|isend|irecv|together", source)
    for rank in ranks_of(program):
        [report] = reported[rank][program.__name__]["reports"]
        if kind_of(program) == "allocator-reuse":
            assert report["fix"].startswith("tensor.record_stream(")
        elif returns_work:
            assert report["fix"].startswith(f"work.wait() before {report['second'][0]}")
            assert f"{Path(inspect.getfile(program)).name}:{line}" in report["fix"]
        else:
            assert "wait_stream(torch.npu.Stream(" in report["fix"]


@pytest.mark.parametrize("program", CORRECT, ids=program_name)
def test_a_correct_program_gives_no_report(reported, program):
    for told in reported:
        found = told[program.__name__]["reports"]
        assert [report["text"] for report in found] == []


@pytest.mark.parametrize("program", RACY, ids=program_name)
def test_a_racy_program_is_stopped_at_its_second_line(raised, program):
    for rank in ranks_of(program):
        told = raised[rank][program.__name__]
        assert told["stopped"] == marked(program, "second")[0]
        assert [report["kind"] for report in told["reports"]] == [kind_of(program)]
