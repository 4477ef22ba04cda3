"""The sanitizer's switch, its modes, and what its reports turn into."""

from __future__ import annotations

import json

import pytest
import torch

import npu_dispatch
from npu_dispatch.npu import _sanitizer
from npu_dispatch.sanitizer import Suppressions, to_json, to_sarif
from npu_dispatch.stats import StatsReader, segment_file

RACE = """
import torch
s = torch.npu.Stream()
x = torch.ones(100, device="npu")
with torch.npu.stream(s):
    x.add_(1)
torch.npu.synchronize()
print("end")
"""


@pytest.fixture(autouse=True)
def off():
    was = _sanitizer._state.mode
    _sanitizer.disable_npu_sanitizer()
    _sanitizer.clear_reports()
    yield
    _sanitizer.disable_npu_sanitizer()
    _sanitizer.clear_reports()
    if was:
        _sanitizer.enable_npu_sanitizer(was)


def race() -> torch.Tensor:
    s = torch.npu.Stream()
    x = torch.ones(100, device="npu")
    with torch.npu.stream(s):
        x.add_(1)
    return x


def test_it_can_be_switched_on_twice_and_off():
    npu_dispatch.enable_npu_sanitizer("report")
    torch.npu._sanitizer.enable_npu_sanitizer("report")
    race()
    _sanitizer.disable_npu_sanitizer()
    race()

    assert [r.count for r in _sanitizer.reports()] == [1]


def test_a_refused_launch_does_not_run_and_the_stream_goes_on():
    _sanitizer.enable_npu_sanitizer()
    s = torch.npu.Stream()
    x = torch.ones(100, device="npu")

    with (
        torch.npu.stream(s),
        pytest.raises(_sanitizer.NPUSanitizerErrors, match="wait_stream"),
    ):
        x.add_(1)

    s.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(s):
        assert (x + 1).tolist() == [2.0] * 100


def test_the_same_two_lines_are_one_report():
    _sanitizer.enable_npu_sanitizer("report")
    for _ in range(5):
        race()
        torch.npu.synchronize()

    [report] = _sanitizer.reports()
    assert report.count == 5


def test_reports_and_costs_are_counted_where_other_processes_see_them():
    def counters():
        with StatsReader(segment_file()) as reader:
            return reader.process(), reader.devices()[0]

    _, before = counters()
    _sanitizer.enable_npu_sanitizer("report", ["read/write *"])
    for _ in range(100):  # every sixteenth call is measured
        race()
        torch.npu.synchronize()
    process, device = counters()
    _sanitizer.disable_npu_sanitizer()
    after, cleared = counters()

    assert process.sanitizer_enabled
    assert not after.sanitizer_enabled
    moved = {
        kind: n - before.sanitizer_reports[kind]
        for kind, n in device.sanitizer_reports.items()
    }
    assert {kind: n for kind, n in moved.items() if n} == {"race_ww": 100}
    assert device.sanitizer_ns > before.sanitizer_ns
    assert device.sanitizer_bytes > 0
    assert cleared.sanitizer_bytes == 0


def test_a_suppressed_file_gives_no_report():
    _sanitizer.enable_npu_sanitizer("raise", ["write/write */test_switch.py"])
    race()

    assert _sanitizer.reports() == []


def test_a_suppression_of_another_kind_changes_nothing():
    _sanitizer.enable_npu_sanitizer("report", ["host-read */test_switch.py"])
    race()

    assert len(_sanitizer.reports()) == 1


def test_a_bad_suppression_names_its_line():
    with pytest.raises(ValueError, match="line 2"):
        Suppressions(["# fine", "no-such-kind *.py"])


def test_a_backward_operator_names_its_forward_line():
    _sanitizer.enable_npu_sanitizer("report")
    s = torch.npu.Stream()
    x = torch.ones(8, device="npu", requires_grad=True)
    torch.npu.synchronize()
    y = (x * x).sum()  # the forward line
    with torch.npu.stream(s):
        x.data.mul_(2)
    y.backward()

    found = [r for r in _sanitizer.reports() if r.second.forward]
    assert found
    assert {r.second.forward[0].file for r in found} == {__file__}
    assert "in the backward of the call at" in found[0].text()


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="print"):
        _sanitizer.enable_npu_sanitizer("print")


def test_reports_become_json_and_sarif():
    _sanitizer.enable_npu_sanitizer("report")
    race()
    found = _sanitizer.reports()

    [as_json] = json.loads(to_json(found))
    [result] = json.loads(to_sarif(found))["runs"][0]["results"]
    location = result["locations"][0]["physicalLocation"]

    assert as_json["kind"] == result["ruleId"] == "write/write"
    assert location["artifactLocation"]["uri"] == __file__
    assert location["region"]["startLine"] == found[0].second.where.line


def test_the_environment_switches_it_on(python):
    result = python(RACE, check=False, TORCH_NPU_SANITIZER="1")
    assert "NPUSanitizerErrors" in result.stderr
    assert "end" not in result.stdout

    result = python(RACE, TORCH_NPU_SANITIZER="report")
    assert "write/write" in result.stderr
    assert "end" in result.stdout

    assert "write/write" not in python(RACE, TORCH_NPU_SANITIZER="0").stderr


def test_two_devices_are_ordered_by_a_copy_between_them(python):
    python(
        """
import torch
from npu_dispatch.npu import _sanitizer
_sanitizer.enable_npu_sanitizer("report")
x = torch.ones(1000, device="npu:0")
y = x.to("npu:1")
y.add_(1)
x.add_(1)
torch.npu.synchronize(0), torch.npu.synchronize(1)
assert not _sanitizer.reports(), _sanitizer.reports()[0].text()
""",
        NPU_DISPATCH_DEVICES="2",
    )


def test_threads_that_wait_for_what_they_made_race_with_nobody(python):
    python(
        """
import threading, torch
from npu_dispatch.npu import _sanitizer
_sanitizer.enable_npu_sanitizer("report")
made = []
def make():
    with torch.npu.stream(torch.npu.Stream()):
        made.append(torch.ones(1000, device="npu"))
        torch.npu.current_stream().synchronize()
t = threading.Thread(target=make); t.start(); t.join()
made[0].add_(1)
torch.npu.synchronize()
assert not _sanitizer.reports(), _sanitizer.reports()[0].text()
"""
    )


def test_the_command_reports_and_exits_with_66(tmp_path, child_environment):
    import subprocess
    import sys

    script = tmp_path / "race.py"
    script.write_text(RACE)
    sarif = tmp_path / "found.sarif"
    result = subprocess.run(
        [sys.executable, "-m", "npu_dispatch", "sanitize", "--sarif", sarif, script],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert result.returncode == 66, result.stderr
    assert f"{script}:6" in result.stderr
    assert "1 findings" in result.stderr
    assert json.loads(sarif.read_text())["runs"][0]["results"]
