"""What is advised for a verdict, by what the process already uses."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from npu_dispatch.observe.judge.advice import advice
from npu_dispatch.observe.segment import OpCost, SiteWaits

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
