"""What is advised for a verdict, by what the process already uses."""

from __future__ import annotations

import re
from types import SimpleNamespace

import pytest

from npu_dispatch.observe.judge.verdict import advice
from npu_dispatch.observe.segment.values import OpCost, SiteWaits

WAIT = SiteWaits("/way/to/train.py:7 in step", "item", 3, 3_000_000)
OPS = [OpCost("aten::mm", 3, 75), OpCost("aten::add", 1, 25)]


def view_of(steps=8, replays=0, failures=None, rank=""):
    device = SimpleNamespace(
        graph_replays=replays, graph_capture_failures=failures or {}
    )
    return SimpleNamespace(
        info=SimpleNamespace(pid=42),
        rank=rank,
        process=SimpleNamespace(optimizer_steps=steps),
        devices=[device],
        streams=[],
    )


@pytest.mark.parametrize(
    ("kind", "facts", "says"),
    [
        ("blocked", {}, "at train.py:7 in step, keep the value on the device"),
        ("launch-bound", {"steps": 0}, "torch.npu.graph"),
        ("launch-bound", {"replays": 8}, "py-spy record"),
        ("launch-bound", {"failures": {"sync": 1}}, "kept a graph from being captured"),
        ("host-bound", {}, "py-spy record"),
        ("held", {}, "record the event as early as possible"),
        ("unrecorded", {}, "event.record(stream)"),
        ("hung", {}, "npu-dispatch dump 42"),
        ("hung", {"rank": "1"}, "npu-dispatch dump --all-ranks says"),
        ("quiet", {}, ""),
        ("device-bound", {}, "(aten::mm 75%, aten::add 25%)"),
        ("failed", {}, "torch.npu.clear_error(stream)"),
        ("idle", {"steps": 0}, 'model.to("npu")'),
    ],
)
def test_what_to_try_depends_on_the_verdict(kind, facts, says):
    said = advice(kind, view_of(**facts), at=WAIT.at, reason=WAIT.reason, ops=OPS)

    assert said == says if not says else says in said


# Four programs as they are, by torch.compile(model) and by compile_step(): the verdict
# of `npu-dispatch run`, its costliest operators with the time per call of the first,
# and what is advised. On two cores compile_step() made a step of the plain transformer
# 0.7, of the LSTM 0.9, of the DQN 0.2 and of the MLP 0.3 times as long.
PROGRAMS = """
transformer plain | device | aten::mm 45 % 130 us, aten::addmm 16 % | compile
transformer compiled | device | aten::mm.out 47 % 130 us, npu_fused_add_1 5 % | half
transformer compile_step | device | graph replay 99 % 5500 us | rest
lstm plain | device | aten::mkldnn_rnn_layer_backward 52 % 680 us | compile
lstm compiled | device | aten::mkldnn_rnn_layer_backward 53 % 680 us | compile
lstm compile_step | device | graph replay 100 % 2700 us | rest
dqn plain | launch | aten::addmm 30 % 3 us, aten::mm 20 % | compile
dqn compiled | launch | aten::addmm.out 30 % 3 us, npu_fused_relu_0 5 % | compile
dqn compile_step | device | graph replay 98 % 18 us, memcpy 2 % | rest
mlp plain | launch | aten::mm 40 % 3 us, aten::addmm 30 % | compile
mlp compiled | launch | aten::mm.out 40 % 3 us, npu_fused_relu_0 5 % | compile
mlp compile_step | device | graph replay 98 % 33 us, memcpy 2 % | rest
"""
COST = re.compile(r"(.+) (\d+) %(?: (\d+) us)?")
SAYS = {
    "compile": "npu_dispatch.compile_step(",
    "half": "torch.autocast(",
    "rest": "use more cores or a smaller model",
}


@pytest.mark.parametrize("row", PROGRAMS.strip().splitlines())
def test_nothing_is_advised_that_a_program_has_or_is_slower_with(row, monkeypatch):
    monkeypatch.setattr(
        "npu_dispatch.observe.judge.verdict._computes_bf16", lambda: True
    )
    program, kind, costs, expected = (part.strip() for part in row.split("|"))
    ops = []
    for name, share, us in (COST.fullmatch(c).groups() for c in costs.split(", ")):
        ns = int(share) * 1_000_000
        ops.append(OpCost(name, max(1, ns // (1000 * int(us or 1))), ns))
    replays = 8 if program.endswith("compile_step") else 0

    said = advice(f"{kind}-bound", view_of(8, replays), ops=ops)

    assert [how for how, text in SAYS.items() if text in said] == [expected]
