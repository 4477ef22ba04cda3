"""What fails on npu alone is told apart from what is wrong on cpu, too."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.judges import run, shards, suites

# Eight runs of pytest, on a slow machine, too.
pytestmark = pytest.mark.timeout(900)

SUITE = """
import os, pytest, torch
@pytest.fixture
def device(): return "cpu"  # what runs here has no other device
ON_NPU = os.environ["SUITES_DEVICE"] == "npu"
def test_right(): pass
def test_wrong_on_npu(): assert not ON_NPU
def test_wrong_on_both(): assert False
def test_wrong_on_cpu_alone(): assert ON_NPU
def test_dies_on_npu():
    if ON_NPU: os.kill(os.getpid(), 9)
def test_asks_less_of_cpu(device):
    if not ON_NPU and torch.device(device).type == "cpu": return
    assert torch.ones(2, device=device).sum().item() == 3
def test_skips_cpu(device):
    if not ON_NPU and device == "cpu": pytest.skip("not on cpu")
    assert (torch.ones(2).to(device) + 1).sum().item() == 3
def test_says_something_else_in_disguise(device):
    if not ON_NPU and torch.device(device).type == "cpu": return
    assert ON_NPU, "it is in disguise"
    assert False, "it is on npu"
def test_takes_no_disguise(device):
    torch.ops.aten.empty.memory_format([2], device=torch.device(device))
    assert not ON_NPU
class TestOfClass:
    device_type = "cpu"
    def test_asks_less_of_cpu_by_class(self):
        if not ON_NPU and self.device_type == "cpu": return
        assert False
    def test_asks_less_of_cpu_by_what_was_made(self, made={"device": "cpu"}):
        if not ON_NPU and made["device"] == "cpu": return
        assert False
done = []
def test_leaves_something(): done.append(1)
def test_wrong_on_both_behind_another(): assert not done
def test_wrong_on_npu_behind_another(): assert not (done and ON_NPU)
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> suites.Suite:
    (tmp_path / "test_of_others.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    monkeypatch.setattr(suites, "PYTHON", Path(sys.executable))
    monkeypatch.setattr(suites, "OUT", tmp_path)
    monkeypatch.setattr(run, "LOGS", tmp_path / "logs")

    def of(device: str) -> list[shards.Shard]:
        arguments = ("-c", "pytest.ini", "test_of_others.py")
        env = {"SUITES_DEVICE": device}
        return [shards.Shard("others", arguments, tmp_path, env)]

    return suites.Suite("others", "1", "here", lambda: None, of, lambda name: name)


def test_what_is_counted_fails_on_npu_alone(
    suite: suites.Suite, forked: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "PARTS", 1)
    found = run.judged(suite, [], run.Work(0, 1))
    counts = found["counts"]
    assert {f["test"].rpartition("::")[2]: f["outcome"] for f in found["failures"]} == {
        "test_wrong_on_npu": "failed",
        "test_dies_on_npu": "crashed",
        "test_says_something_else_in_disguise": "failed",
        "test_takes_no_disguise": "failed",
        "test_wrong_on_npu_behind_another": "failed",
    }
    assert counts["not right on cpu either"] == 6
    assert counts["passed"] == 3 and sum(counts.values()) == 14
    assert run.unknown(found, {"others": {"parts": {"0": found}}}) == []
    assert run.unknown(found, {}) == found["failures"]
