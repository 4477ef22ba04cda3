"""Programs of two ranks, right and wrong, and exactly what the sanitizer says."""

import json
from pathlib import Path
from typing import Any

import pytest
from interpreter import Forked, shared_zygote
from ranks import make_ranks

from tests.races.rank_programs import FILE, FIRST_LINE, SECOND_LINE, Program, programs

# A rank that an error has stopped does not answer the other one.
RUN = """
import json, traceback
from npu_dispatch.npu import _sanitizer
from tests.races.rank_programs import FILE, NAMES, programs
join("hccl")
known = {**NAMES, "other": dist.new_group([0, 1]), "peer": 1 - rank}
told = []
for program in programs():
    _sanitizer.clear_reports()
    _sanitizer.enable_npu_sanitizer("raise")
    stopped, own = None, dict(known)
    try:
        exec(compile(program.text, FILE, "exec"), own)
    except _sanitizer.NPUSanitizerErrors as error:
        stopped = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)
                   if frame.filename == FILE][-1]
    torch.npu.synchronize()
    own = None
    told.append(dict(stopped=stopped, reports=[
        dict(kind=r.kind, fix=r.suggestion, ops=[r.first.op, r.second.op],
             lines=[r.first.where.line, r.second.where.line])
        for r in _sanitizer.reports()]))
    _sanitizer.disable_npu_sanitizer()
    dist.barrier()
    torch.npu.empty_cache()
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory) -> list[list[dict[str, Any]]]:
    """What each rank was told about each program."""
    folder: Path = tmp_path_factory.mktemp("ranks")
    return [
        json.loads(one.stdout)
        for one in make_ranks(Forked(folder, shared_zygote()), folder)(RUN)
    ]


def wrong_with(program: Program, stopped: int | None, reports: Any) -> str:
    """Return in what the sanitizer's words are not those of the program's mistake."""
    if not program.kind:
        return "reported" if reports else ""
    if [(r["kind"], r["lines"]) for r in reports] != [
        (program.kind, [FIRST_LINE, SECOND_LINE])
    ]:
        return "not found at its two lines"
    if stopped != SECOND_LINE:
        return f"stopped at {stopped}"
    [report] = reports
    if not all(
        op in program.called(side)
        for op, side in zip(report["ops"], ("first", "second"), strict=True)
    ):
        return "other operators"
    returns = " as work:" in program.first or " = " in program.first
    asynchronous = returns and report["ops"][0].startswith("hccl:")
    if program.kind == "allocator-reuse":
        fixes = ["tensor.record_stream("]
    elif asynchronous:
        fixes = [f"work.wait() before {report['ops'][1]}", f"{FILE}:{FIRST_LINE}"]
    else:
        fixes = ["wait_stream(torch.npu.Stream("]
    return "" if all(fix in report["fix"] for fix in fixes) else "no such fix"


def test_a_racy_program_is_stopped_at_its_second_line_and_no_other_is(told):
    wrong = []
    for rank, of_rank in enumerate(told):
        for program, found in zip(programs(), of_rank, strict=True):
            if program.only not in (None, rank):
                if found["reports"]:
                    wrong.append((rank, program.text, found))
            elif what := wrong_with(program, **found):
                wrong.append((rank, what, program.text, found))
    assert not wrong, "\n".join(map(str, wrong))
