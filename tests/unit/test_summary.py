"""The end of `npu-dispatch run`: what held the program up, where, what to try."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from npu_dispatch.observe.judge.action import action
from npu_dispatch.observe.judge.steps import Steps
from npu_dispatch.observe.segment import OpCost, SiteWaits

TRAINING = """
import torch
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(8)]).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(40):
    optimizer.zero_grad()
    loss = model(torch.ones(4, 16).npu()).square().mean()
    loss.backward()
    optimizer.step()
    torch.npu._sleep(3_000_000)  # the host comes to item() first, if not each time
    loss.item()
"""
BACKWARD, ITEM = 8, 11


@pytest.fixture
def run(tmp_path: Path, python, child_environment):
    def run(program: str):
        script = tmp_path / "script.py"
        script.write_text(program)
        path = tmp_path / "figures.json"
        command = ["-m", "npu_dispatch", "run", "--json", str(path), str(script)]
        result = python.run(*command, env=child_environment(COLUMNS="200"))
        assert result.returncode == 0, result.stderr
        return result.stderr, json.loads(path.read_text())

    return run


def test_the_summary_ends_with_the_verdict_the_lines_and_what_to_try(run):
    text, figures = run(TRAINING)

    table, _, told = text.partition("└")
    assert "launches" in table
    lines = told.splitlines()[1:]
    assert lines[0] == figures["verdict"]["text"]
    assert figures["verdict"]["kind"] in ("blocked", "launch-bound", "device-bound")
    assert lines[1].startswith("step ") and lines[1].endswith("(40 steps)")
    assert any(
        line.startswith("waits ") and f"script.py:{ITEM} in <module>" in line
        for line in lines
    )
    assert any(
        line.startswith("launches ") and f"script.py:{BACKWARD} in <module>" in line
        for line in lines
    )
    assert lines[-1] == f"try      {figures['verdict']['action']}"


def test_the_figures_have_the_steps_and_the_lines(run):
    _, figures = run(TRAINING)

    assert figures["steps"] == 40
    assert 0 < figures["step_s"] < figures["seconds"]
    assert 0 < figures["step_device_s"] < figures["seconds"]
    [item] = [w for w in figures["waits"] if w["at"].endswith(f":{ITEM} in <module>")]
    assert item["reason"] == "item" and item["waits"] <= 40
    sampled = sum(line["tasks"] for line in figures["tasks"])
    assert 0 < sampled * 16 <= figures["launches"] + 16


def test_a_whole_step_counts_as_a_step(run):
    _, figures = run("""
import torch, npu_dispatch
model = torch.nn.Linear(4, 1).npu()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
step = npu_dispatch.compile_step(
    model, optimizer, torch.nn.MSELoss(), backend="eager"
)
x, y = torch.ones(2, 4).npu(), torch.ones(2, 1).npu()
for _ in range(20):
    step(x, y)
assert step.replays > 10, step
""")

    assert figures["steps"] == 20


def test_a_program_that_does_not_use_npu_is_told_so(run):
    text, figures = run("import torch; torch.ones(2) + 1")

    assert figures is None
    assert "has not used npu" in text


WAIT = SiteWaits("/way/to/train.py:7 in step", "item", 3, 3_000_000)
OPS = [OpCost("aten::mm", 3, 75), OpCost("aten::add", 1, 25)]


@pytest.mark.parametrize(
    ("kind", "facts", "says"),
    [
        ("blocked", {}, "at train.py:7 in step, keep the value on the device"),
        ("launch-bound", {}, "compile_step(model, optimizer, loss_fn)"),
        ("launch-bound", {"steps": 0}, "torch.npu.graph"),
        ("launch-bound", {"replays": 8}, "py-spy record"),
        ("host-bound", {}, "py-spy record"),
        ("held", {}, "record the event as early as possible"),
        ("hung", {}, "npu-dispatch dump 42"),
        ("hung", {"rank": "1"}, "npu-dispatch dump --all-ranks says"),
        ("quiet", {}, ""),
        ("device-bound", {}, "(aten::mm 75%, aten::add 25%)"),
        ("failed", {}, "the program's log"),
        ("idle", {"steps": 0}, 'model.to("npu")'),
    ],
)
def test_what_to_try_depends_on_the_verdict(kind, facts, says):
    facts = {"steps": 8, "replays": 0, **facts}
    view = SimpleNamespace(
        info=SimpleNamespace(pid=42),
        rank=facts.get("rank", ""),
        process=SimpleNamespace(optimizer_steps=facts["steps"]),
        devices=[SimpleNamespace(graph_replays=facts["replays"])],
    )

    said = action(kind, view, at=WAIT.at, reason=WAIT.reason, ops=OPS)

    assert said == says if not says else says in said


def test_steps_are_those_of_one_optimizer_and_have_a_span_inside_of_them():
    readings = iter(range(100))

    def read():
        busy = SimpleNamespace(device=0, stream=0, busy_ns=10**9 * next(readings))
        return SimpleNamespace(streams=[SimpleNamespace(stats=busy)])

    class Optimizer:
        pass

    steps, first, second = Steps(read), Optimizer(), Optimizer()
    for _ in range(40):
        steps.stepped(first, (), {})
        steps.stepped(second, (), {})

    assert steps.count == 40
    # Read after steps 8, 16 and 32.
    assert next(readings) == 3
    assert steps.device_s == 2 / 24
    del first
    steps.stepped(second, (), {})
    assert steps.count == 41
