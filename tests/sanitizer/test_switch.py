"""The sanitizer's switch, its modes, and what its reports turn into."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from urllib.parse import quote

import pytest
import torch
from click.testing import CliRunner
from sanitizer_off import sanitizer_off

import npu_dispatch
from npu_dispatch.cli import main
from npu_dispatch.config import bad_values
from npu_dispatch.npu import _sanitizer
from npu_dispatch.observe.segment import StatsReader, segment_file
from npu_dispatch.sanitizer import Frame, Suppressions

pytestmark = pytest.mark.npu_races("to see what is said of them")

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
    with sanitizer_off():
        yield


def race():
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


GROWTH = """
import ctypes, gc, json, torch, npu_dispatch
from npu_dispatch.npu import _sanitizer

class Mallinfo2(ctypes.Structure):
    _fields_ = [
        ("other", ctypes.c_size_t * 7),
        ("uordblks", ctypes.c_size_t),  # bytes that are in use
        ("more", ctypes.c_size_t * 2),
    ]

mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2

def allocated():
    for _ in range(100):
        npu_dispatch.enable_npu_sanitizer("report")
        torch.ones(100, device="npu").add_(1)
        _sanitizer.disable_npu_sanitizer()
    torch.npu.synchronize()
    gc.collect()
    return mallinfo2().uordblks

after = [allocated() for _ in range(7)]
print(json.dumps([b - a for a, b in zip(after, after[1:])]))
"""


@pytest.mark.libc_heap
def test_it_leaves_nothing_behind_when_it_is_switched_off(fresh_python):
    # malloc's caches of threads count as memory in use: a block that the host takes
    # and the launcher frees stays in the launcher's, up to seven of each size.
    off = {"GLIBC_TUNABLES": "glibc.malloc.tcache_count=0"}

    growth = json.loads(fresh_python(GROWTH, TORCH_NPU_SANITIZER="0", **off).stdout)

    # What grows now and then is others'. What is left behind is so each time.
    assert len(growth) == 6 and min(growth) <= 0, growth


def test_a_refused_launch_does_not_run_and_the_stream_goes_on():
    _sanitizer.enable_npu_sanitizer()
    s = torch.npu.Stream()
    x = torch.ones(100, device="npu")

    wanted = pytest.raises(_sanitizer.NPUSanitizerErrors, match="wait_stream")
    with torch.npu.stream(s), wanted:
        x.add_(1)

    s.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(s):
        assert (x + 1).tolist() == [2.0] * 100


def test_reports_and_costs_are_counted_where_other_processes_see_them():
    def counters():
        with StatsReader(segment_file()) as reader:
            return reader.process(), reader.devices()[0]

    _, before = counters()
    _sanitizer.enable_npu_sanitizer("report", ["read/write *"])
    for _ in range(100):  # one call in sixteen is measured
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


def test_a_suppression_is_of_its_kind_file_and_line():
    _sanitizer.enable_npu_sanitizer("report")
    race()
    [report] = _sanitizer.reports()
    line = report.second.where.line
    folder = "/home/ada/a folder"
    frame = Frame(f"{folder}/a race.py", 6, "race", True)
    spaced = replace(report, second=replace(report.second, stack=(frame,)))
    for rule, one, matched in (
        ("write/write */test_switch.py", report, True),
        ("host-read */test_switch.py", report, False),
        (f"*/test_switch.py:{line}", report, True),
        (f"*/test_switch.py:{line + 1000}", report, False),
        ("write/write */a race.py:6", spaced, True),
        ('"*/a race.py"', spaced, True),
        (r"*a\ race.py  # known", spaced, True),
        ("*/race.py", spaced, False),
    ):
        assert Suppressions([rule]).match(one) is matched, rule
    _sanitizer.disable_npu_sanitizer()


@pytest.mark.parametrize("line", ["no-such-kind *.py", "write/write", '"*.py'])
def test_a_bad_suppression_is_refused_with_its_line(line):
    with pytest.raises(ValueError, match="suppressions, line 2: expected"):
        Suppressions(["# fine", line])


def test_a_host_operator_is_named_with_its_overload_and_argument():
    _sanitizer.enable_npu_sanitizer("report")
    p, x = torch.zeros(100).pin_memory(), torch.ones(100, device="npu")
    p.copy_(x, non_blocking=True)
    assert p.eq(1).shape == (100,)
    torch.npu.synchronize()

    [report] = _sanitizer.reports()
    first_line = report.second.text().partition("\n")[0]
    assert first_line == "aten::eq.Scalar reads `self` on the host"


@pytest.mark.parametrize("busy_before", [False, True])
def test_another_thread_that_reads_a_pinned_buffer_is_seen(busy_before):
    """Also one that had nothing to look at for a while."""
    _sanitizer.enable_npu_sanitizer("report")
    p, x = torch.zeros(100).pin_memory(), torch.ones(100, device="npu")
    torch.npu.synchronize()
    queued, looked = threading.Event(), threading.Event()

    def reader():
        if busy_before:
            assert p.sum() == 0
            looked.set()
        assert queued.wait(60)
        p.sum()

    thread = threading.Thread(target=reader)
    thread.start()
    if busy_before:
        assert looked.wait(60)
    p.copy_(x, non_blocking=True)
    queued.set()
    thread.join()

    [report] = _sanitizer.reports()
    assert (report.kind, report.second.op) == ("host-read", "aten::sum.dim_IntList")
    assert report.second.where.function.endswith("reader")


def test_switching_off_gives_torch_and_threads_their_own_methods_back():
    def methods():
        tensor, storage = torch.Tensor, torch.UntypedStorage
        return [
            threading.Thread.start,
            *(vars(tensor).get(name) for name in ("numpy", "tolist", "__dlpack__")),
            vars(storage).get("_write_file"),
            torch._C.PyTorchFileWriter.write_record,
        ]

    before = methods()
    _sanitizer.enable_npu_sanitizer("report")
    assert all(a is not b for a, b in zip(before, methods(), strict=True))
    _sanitizer.disable_npu_sanitizer()

    assert methods() == before


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


def test_the_environment_switches_it_on(python):
    result = python(RACE, check=False, TORCH_NPU_SANITIZER="1")
    assert "NPUSanitizerErrors" in result.stderr
    assert "end" not in result.stdout

    result = python(RACE, TORCH_NPU_SANITIZER="report")
    assert "write/write" in result.stderr
    assert "end" in result.stdout

    assert "write/write" not in python(RACE, TORCH_NPU_SANITIZER="0").stderr


def test_copies_between_devices_and_waits_of_threads_are_orders(python):
    code = """
import threading, torch
from npu_dispatch.npu import _sanitizer
_sanitizer.enable_npu_sanitizer("report")
x = torch.ones(1000, device="npu:0")
y = x.to("npu:1")
y.add_(1)
x.add_(1)
made = []
def make():
    with torch.npu.stream(torch.npu.Stream()):
        made.append(torch.ones(1000, device="npu"))
        torch.npu.current_stream().synchronize()
t = threading.Thread(target=make); t.start(); t.join()
made[0].add_(1)
torch.npu.synchronize(0), torch.npu.synchronize(1)
print([report.text() for report in _sanitizer.reports()])
"""
    assert python(code, NPU_DISPATCH_DEVICES="2").stdout == "[]\n"


@pytest.fixture
def command(tmp_path, child_environment):
    """Run `npu-dispatch sanitize ARGUMENTS` in a folder with a space in its name."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "a race.py").write_text(RACE)
    # What pip writes to bin/.
    (folder / "npu-dispatch").write_text(
        "import sys\nfrom npu_dispatch.cli import main\nsys.exit(main())\n"
    )

    def run(*arguments, **env):
        return subprocess.run(
            [sys.executable, "npu-dispatch", "sanitize", *arguments],
            env=child_environment(**env),
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
        )

    run.folder = folder
    return run


def test_the_command_reports_and_exits_with_66(command):
    result = command("--sarif", "found.sarif", "-o", "found.json", "a race.py")

    script = command.folder / "a race.py"
    assert result.returncode == 66, result.stderr
    assert f"{script}:6" in result.stderr
    assert "1 finding\n" in result.stderr
    [found] = json.loads((command.folder / "found.sarif").read_text())["runs"]
    [result] = found["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {
        "uri": quote(script.name),
        "uriBaseId": "%SRCROOT%",
    }
    assert place["region"]["startLine"] == 6
    [report] = json.loads((command.folder / "found.json").read_text())
    assert report["kind"] == result["ruleId"] == "write/write"
    frames = report["first"]["stack"] + report["second"]["stack"]
    assert {f["file"] for f in frames if f["user"]} == {str(script)}


def test_the_command_obeys_suppressions_of_a_relative_script(command):
    (command.folder / "known").write_text("*/a race.py  # known\n")

    by_option = command("--suppressions", "known", "a race.py")
    assert by_option.returncode == 0, by_option.stderr
    by_variable = command("a race.py", TORCH_NPU_SANITIZER_SUPPRESSIONS="known")
    assert by_variable.returncode == 0, by_variable.stderr


def test_the_command_explains_a_bad_suppression(tmp_path):
    known = tmp_path / "known"
    known.write_text("# fine\nno-such-kind *.py\n")
    command = ["sanitize", "--suppressions", str(known), __file__]
    result = CliRunner().invoke(main, command)

    assert result.exit_code == 2
    assert "known, line 2: expected GLOB or KIND GLOB" in result.output


WORKS = "import torch\nprint(torch.ones(2, device='npu').sum().item())"


@pytest.mark.parametrize(
    ("variable", "value", "accepted"),
    [
        ("TORCH_NPU_SANITIZER", "2", "report"),
        ("TORCH_NPU_SANITIZER", "warn", "report"),
        ("NPU_DISPATCH_WATCHDOG", "30 seconds", "30s"),
    ],
)
def test_a_variable_that_asks_for_nothing_known_is_told(
    python, variable, value, accepted
):
    result = python(WORKS, **{variable: value})

    assert_told_once(result, variable, value, accepted)


def test_it_is_told_where_we_are_imported_first(fresh_python):
    result = fresh_python("import npu_dispatch\n" + WORKS, TORCH_NPU_SANITIZER="2")

    assert_told_once(result, "TORCH_NPU_SANITIZER", "2", "report")


def assert_told_once(result, variable, value, accepted):
    assert result.stdout == "2.0\n"
    assert result.stderr.count(f"{variable}={value!r}") == 1
    assert accepted in result.stderr


@pytest.mark.parametrize(
    ("variable", "values"),
    [
        ("TORCH_NPU_SANITIZER", ["", "0", "off", "FALSE", "1", "Report", "raise"]),
        ("NPU_DISPATCH_WATCHDOG", ["", "0", "30s", "1.5m", "500ms", "30"]),
    ],
)
def test_a_good_value_of_a_variable_is_not_mentioned(variable, values):
    assert [bad_values({variable: value}) for value in values] == [[]] * len(values)
