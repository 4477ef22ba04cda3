"""`npu-dispatch run --compiled`: what became of each line given to torch.compile."""

import json

import pytest
from interpreter import Spawned

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
def told(tmp_path_factory):
    """What is told of PROGRAM: the rows of its JSON file, and stderr."""
    folder = tmp_path_factory.mktemp("compiled")
    (folder / "program.py").write_text(PROGRAM)
    options = ["--compiled", "-o", "told.json", "program.py"]
    done = Spawned(folder).run("-m", "npu_dispatch", "run", *options)
    assert done.returncode == 0, done.stderr
    return json.loads((folder / "told.json").read_text())["compiled"], done.stderr


def about(told, line, became):
    return [
        (row["times"], row["about"])
        for row in told[0]
        if f"program.py:{line} in" in row["at"] and row["became"] == became
    ]


# A line of PROGRAM, what became of it, how often, and what is said about that.
TOLD = [
    (5, "compiled", 2, ("3 operators, ", "again because tensor 'x' size mismatch at")),
    (7, "fell back", 2, ("aten.sort.stable is launched as it is in eager code",)),
    (8, "compiled", 2, ("1 operator, ",)),
    (8, "broke", 2, ("`print`",)),
    (11, "failed", 1, ("`print`",)),
]


def test_what_became_of_each_line_is_told_with_the_reason(told):
    for line, became, times, said in TOLD:
        [(counted, what)] = about(told, line, became)
        assert counted == times, (line, became)
        assert all(text in what for text in said), (line, what)


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


@pytest.mark.parametrize("asked", [False, True])
def test_a_program_that_compiles_nothing_is_told_so_if_it_asks(tmp_path, python, asked):
    (tmp_path / "program.py").write_text("import torch; torch.ones(1).npu()")
    options = [*(["--compiled"] if asked else []), "-o", "told.json"]

    done = python.run("-m", "npu_dispatch", "run", *options, "program.py")

    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "told.json").read_text())
    assert found.get("compiled", []) == [] and ("compiled" in found) == asked
    told = "torch.compile: no call of a compiled function" in done.stderr
    assert told == asked
