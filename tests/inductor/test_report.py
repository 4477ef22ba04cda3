"""`npu-dispatch run --compiled`: what became of each line given to torch.compile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """\
import torch
torch._dynamo.config.recompile_limit = 2
torch._dynamo.config.automatic_dynamic_shapes = False

@torch.compile
def step(x):
    y, _ = torch.sort(x * 2)
    print("a break")
    return y + 1

@torch.compile(fullgraph=True)
def whole(x):
    print("not in a graph")
    return x

@torch.compile(mode="reduce-overhead")
def held(x):
    return x * 3

for n in 4, 5:
    step(torch.ones(n, device="npu"))
try:
    whole(torch.ones(1, device="npu"))
except torch._dynamo.exc.Unsupported:
    pass
kept = [held(torch.ones(2, device="npu")) for _ in range(6)]
for n in 3, 4:
    kept.append(held(torch.ones(n, device="npu")))
"""


@pytest.fixture(scope="module")
def told(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[list[dict[str, Any]], str]:
    """What is told of PROGRAM: the rows of its JSON file, and stderr."""
    from interpreter import Spawned

    folder = tmp_path_factory.mktemp("compiled")
    (folder / "program.py").write_text(PROGRAM)
    options = ["--compiled", "--json", "told.json", "program.py"]
    done = Spawned(folder).run("-m", "npu_dispatch", "run", *options)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "told.json").read_text())["compiled"], done.stderr


def about(told: tuple[Any, str], line: int, became: str) -> list[tuple[int, str]]:
    return [
        (row["times"], row["about"])
        for row in told[0]
        if f"program.py:{line} in" in row["at"] and row["became"] == became
    ]


def test_a_function_is_told_with_its_compiles_and_why_there_was_another(told):
    ((times, what),) = about(told, 5, "compiled")

    assert times == 2
    assert what.startswith("3 operators, ")
    assert "again because tensor 'x' size mismatch at index 0. expected 4" in what


def test_what_follows_a_break_is_told_at_its_own_line(told):
    ((times, what),) = about(told, 8, "compiled")

    assert times == 2 and what.startswith("1 operator, ")
    ((times, why),) = about(told, 8, "broke")
    assert times == 2 and "`print`" in why


def test_an_operator_without_generated_code_is_told_at_its_line(told):
    assert about(told, 7, "fell back") == [
        (2, "aten.sort.stable is launched as it is in eager code")
    ]


def test_a_function_that_cannot_be_compiled_is_told(told):
    ((times, why),) = about(told, 11, "failed")

    assert times == 1 and "`print`" in why


def test_calls_that_run_without_graph_or_compiled_code_are_told_with_the_reason(told):
    limit, replays = about(told, 16, "fell back")

    assert limit[0] == 1 and "recompile_limit" in limit[1]
    assert "expected 3, actual 4" in limit[1]
    assert replays[0] == 1
    assert "results of 4 earlier calls are still in use" in replays[1]


def test_the_table_is_printed_after_the_summary(told):
    assert told[1].index("torch.compile") > told[1].index("launches")
    for word in ("compiled", "broke", "fell back", "failed", "aten.sort.stable"):
        assert word in told[1]


def test_nothing_is_told_unasked(tmp_path: Path, python):
    (tmp_path / "program.py").write_text("import torch; torch.ones(1).npu()")
    options = ["--json", "told.json", "program.py"]

    done = python.run("-m", "npu_dispatch", "run", *options)

    assert done.returncode == 0, done.stderr
    assert "compiled" not in json.loads((tmp_path / "told.json").read_text())
    assert "no call of a compiled function" not in done.stderr


def test_a_program_that_compiles_nothing_is_told_so(tmp_path: Path, python):
    (tmp_path / "program.py").write_text("import torch; torch.ones(1).npu()")

    done = python.run("-m", "npu_dispatch", "run", "--compiled", "program.py")

    assert "torch.compile: no call of a compiled function" in done.stderr
