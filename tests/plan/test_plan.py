"""`npu-dispatch plan`: what it says of programs whose limits are known."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from npu_dispatch.plan.report import Graph, analyse
from npu_dispatch.plan.show import show
from npu_dispatch.plan.simulate import Run, Task, Wait

LOOP = """
import sys, time, torch
model = torch.nn.Linear(256, 256).npu()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
x = torch.ones(64, 256, device="npu")
kept = 0
while True:
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    kept += {after}
"""
TRAINS = LOOP.format(after=0)
# A kernel takes the last one 1 µs, which is less than launching one takes any host.
RATES = SLOW, SLOWER, FAST = 0.2, 0.1, 1e4


@pytest.fixture
def reports(planned) -> dict[float, dict[str, Any]]:
    """What is said of the loop on each of these devices; it ran once."""
    return dict(zip(RATES, planned(TRAINS, RATES).reports, strict=True))


def test_a_program_for_other_devices_is_planned_by_their_names(planned) -> None:
    program = "import torch_npu\n" + TRAINS
    program = program.replace(".npu()", ".cuda()").replace('"npu"', '"cuda"')

    assert planned(program, 1, "--cuda", "--torch-npu").report["step_us"] > 0


def test_a_slow_device_is_the_limit_and_time_follows_its_speed(reports) -> None:
    slow, slower = reports[SLOW], reports[SLOWER]
    assert slow["device_bound"] > 0.9 and slow["sync_bound"] < 0.05
    assert slower["step_us"] == pytest.approx(2 * slow["step_us"], rel=0.05)
    doubled = {row["what"]: row for row in slow["what_if"]}["device 2x faster"]
    assert doubled["speedup"] == pytest.approx(2, rel=0.1)
    assert slow["operators"][0]["name"].startswith("aten::")
    # A graph launches faster, which is not what limits this one.
    assert slow["graph"]["step_us"] > 0.95 * slow["step_us"]


def test_with_a_fast_device_launches_are_the_limit(reports) -> None:
    report = reports[FAST]
    assert report["launch_bound"] > 0.5 and report["sync_bound"] < 0.1
    gains = {row["what"]: row["speedup"] for row in report["what_if"]}
    # However it is launched, the device has the same work.
    work = report["device_bound"] * report["step_us"]
    assert report["graph"]["step_us"] > 0.9 * work
    assert "step in a graph" in gains
    assert gains["device 2x faster"] < 1.1 and gains["host 2x faster"] > 1.5
    # Every launch is one of the loop's lines: forward, backward, optimizer.
    launches = [b for b in report["blames"] if b["reason"] == "launches"]
    lines = {b["where"].split(" in ")[0].rsplit(":", 1)[1] for b in launches}
    assert lines == {"9", "10", "11"}
    assert sum(b["times"] for b in launches) == pytest.approx(report["launches"])
    idle = sum(b["idle_us"] for b in launches)
    assert idle == pytest.approx(report["launch_bound"] * report["step_us"], rel=0.01)


def test_a_sleep_takes_as_long_on_a_faster_host_and_beside_a_graph(planned) -> None:
    report = planned(LOOP.format(after="time.sleep(0.002) or 0"), FAST).report
    steps = {row["what"]: row["step_us"] for row in report["what_if"]}
    launching = report["step_us"] - 2000
    assert launching > 0
    assert steps["host 2x faster"] == pytest.approx(2000 + launching / 2, rel=0.01)
    assert steps["step in a graph"] == pytest.approx(2000, rel=0.01)


def test_the_line_that_waits_is_named(planned) -> None:
    files = ("--html", "plan.html", "--trace", "trace.json")
    done = planned(LOOP.format(after="loss.item()"), SLOW, *files)
    report = done.report
    (blame,) = (b for b in report["blames"] if b["reason"] == "item")
    assert "script.py:12" in blame["where"]
    assert blame["times"] == pytest.approx(1, abs=0.3) and blame["host_us"] > 0
    assert report["sync_bound"] > 0 and "script.py:12" in done.out
    graph = report["graph"]
    assert graph["step_us"] is None and graph["where"].endswith("script.py:12")
    assert "captur" in graph["why_not"]
    html = (done.folder / "plan.html").read_text()
    assert "script.py:12" in html
    assert json.loads((done.folder / "trace.json").read_text())["traceEvents"]


def test_the_device_is_as_fast_beside_a_slower_host(planned, reports) -> None:
    """It is emulated twice as fast, and every time is doubled: neither shows."""
    half = planned(TRAINS, SLOW, "--scale", "host=0.5").report
    assert half["step_us"] == pytest.approx(reports[SLOW]["step_us"], rel=0.05)


def test_a_program_that_does_not_fit_is_said_to_and_where(planned) -> None:
    held = "held = [torch.empty(1 << 27, device='npu') for _ in 'abc']"
    report = planned(TRAINS.replace("kept = 0", f"kept = 0; {held}"), 1).report
    # Three times half a GiB, and the small rest, on a device of 1 GiB.
    assert report["too_much"] == pytest.approx(2**29, rel=0.01)
    assert "script.py:6" in report["too_much_at"]
    assert report["memory"] == 2**30 < report["peak_allocated"]


def test_what_cannot_be_planned_is_said(planned) -> None:
    starts = """
import subprocess, sys
use = "import torch; torch.ones(3, device='npu').sum().item()"
subprocess.run([sys.executable, "-c", use], check=True)
"""
    for program, said in (
        ("import torch\ntorch.ones(1).cuda()", "another device: plan it with --cuda"),
        ("import torch_npu", "written for another device: plan it with --torch-npu"),
        (starts, "it started other processes"),
    ):
        done = planned(program, 1)
        assert done.reports == [] and said in done.err, (program, done.err)


INFERENCE = """
import torch
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU()).npu()
x = torch.ones(8, 64, device="npu")
{before}
while True:
    with torch.no_grad():
        y = model(x)
    {after}
"""


def test_without_an_optimizer_a_call_of_the_model_is_a_step(planned) -> None:
    report = planned(INFERENCE.format(before="", after=""), 10).report
    assert report["step_is"] == "a call of Sequential"
    assert report["steps"] >= 10 and report["launches"] == 2
    assert report["graph"]["step_us"] > 0 and not report["notes"]

    report = planned(INFERENCE.format(before="", after="y.sum().item()"), 10).report
    (wait,) = (b for b in report["blames"] if b["reason"] == "item")
    assert "script.py:9" in wait["where"] and report["launches"] == 3
    assert report["graph"]["where"].endswith("script.py:9")


def test_it_is_one_with_gradients_and_where_its_result_is_drawn(planned) -> None:
    draws = "torch.multinomial(torch.softmax(y, -1), 1).sum().item()"
    program = INFERENCE.format(before="", after=draws)
    program = program.replace("with torch.no_grad()", "with torch.enable_grad()")
    report = planned(program, 10).report
    assert report["step_is"] == "a call of Sequential"
    names = {row["name"]: row["calls"] for row in report["operators"]}
    assert names["aten::multinomial"] == 1


def test_where_there_is_an_optimizer_its_step_counts(planned) -> None:
    trains = "model(x).sum().backward(); optimizer.step()"
    later = "optimizer = torch.optim.Adagrad(model.parameters())"
    launches = set()
    for before in (later, f"model(x); {later}"):
        report = planned(INFERENCE.format(before=before, after=trains), 10).report
        assert report["step_is"] == "a step of Adagrad"
        launches.add(report["launches"])
    assert min(launches) == pytest.approx(max(launches))


def test_a_program_that_ends_early_is_said_to(planned) -> None:
    program = TRAINS.replace("while True", "for _ in range({})")
    done = planned(program.format(3), 1)
    few = done.report
    assert few["steps"] == 2
    assert "ended after 3 steps" in few["notes"][0] and "captur" in few["notes"][1]
    assert "ended after 3 steps" in " ".join(done.out.split())

    enough = planned(program.format(8), 1).report
    (note,) = enough["notes"]
    assert enough["steps"] == 4 and "captur" in note


def test_a_step_that_launches_nothing_is_a_step() -> None:
    run = Run([], [], [0, 9, 18])
    report = analyse(run, "test")
    assert (report.steps, report.launches, report.device_bound) == (2, 0, 0)


CLOCKS = """
import time, torch
a, out = (torch.ones(512, 512, device="npu") for _ in range(2))
for i in range(8):
    begun, ended = (torch.npu.Event(enable_timing=True) for _ in range(2))
    at = time.perf_counter()
    begun.record()
    for _ in range(20):
        torch.mm(a, a, out=out)
    ended.record()
    ended.synchronize()
    print("ms", begun.elapsed_time(ended), (time.perf_counter() - at) * 1e3)
really, at = time.clock_gettime(time.CLOCK_MONOTONIC), time.perf_counter()
time.sleep(0.5)
passed = time.perf_counter() - at
print("slept", passed, time.clock_gettime(time.CLOCK_MONOTONIC) - really)
"""


def test_a_program_sees_the_time_of_the_device_that_it_is_planned_for(planned) -> None:
    said = planned(CLOCKS, 0.5).err.splitlines()
    # From the spec, in ms: three matrices at 0.5 GB/s, and 1 µs beside them.
    device = 20 * (3 * 4 * 512**2 / 0.5e9 + 1e-6) * 1e3
    shown = [line.split()[1:] for line in said if "ms " in line]
    assert len(shown) == 8
    for events, clock in shown:
        assert float(events) == pytest.approx(device, rel=0.01)
        assert float(clock) >= float(events)
    # A sleep passes as it really does, and no more often than once.
    (slept,) = (line.split()[1:] for line in said if "slept" in line)
    assert 0.5 <= float(slept[0]) <= float(slept[1])


MONOTONIC = """
import os, threading, time
before = time.perf_counter_ns()  # of the program, before anything is recorded
import torch
def clocks():
    return {
        "perf_counter": time.perf_counter(), "perf_counter_ns": time.perf_counter_ns(),
        "monotonic": time.monotonic(), "monotonic_ns": time.monotonic_ns(),
    }
seen, backwards = [clocks()], []
def look():
    now = clocks()
    backwards.extend(name for name in now if now[name] < seen[-1][name])
    seen.append(now)
def look_in_another_thread():
    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
w = torch.ones(64, 64, device="npu", requires_grad=True)
model = torch.nn.Linear(64, 64).npu()
def step(i):
    for _ in range(20):
        x = w @ w
        look()
        sum(range(20_000))  # work of the host
        look()
        if i % 2:
            look_in_another_thread()
    x.sum().backward()
    look()
for i in range(4):
    model(w)  # is a step, until there is an optimizer: then another recording begins
    step(i)
optimizer = torch.optim.SGD([w], lr=0.0)
try:
    for i in range(40):
        step(i)
        optimizer.step()
        look()
finally:  # the recording has ended
    look()
    child = os.fork()
    if child == 0:
        look()
        print("BACKWARDS", sorted(set(backwards)), seen[0]["perf_counter_ns"] < before)
        os._exit(0)
    os.waitpid(child, 0)
    look_in_another_thread()
    print("BACKWARDS", sorted(set(backwards)), seen[0]["perf_counter_ns"] < before)
"""


@pytest.mark.parametrize("host", ["0.25", "8"])
def test_the_clock_never_runs_backwards(planned, host: str) -> None:
    done = planned(MONOTONIC, 5, "--scale", f"host={host}")
    shown = [line for line in done.err.splitlines() if "BACKWARDS" in line]
    assert shown == 2 * ["BACKWARDS [] False"], done.err
    assert done.reports


def test_a_long_run_without_a_model_is_planned(planned) -> None:
    program = """
import torch
x = torch.ones(64, device="npu")
for _ in range(100_000):
    x.add_(1)
"""
    report = planned(program, 10).report
    assert report["step_is"] == "the whole run" and report["steps"] == 1
    assert report["launches"] == 100_001
    assert report["device_bound"] * report["step_us"] >= 100_000 * 1.0  # the spec's


def test_what_a_program_did_before_an_interrupt_is_planned(
    python, tmp_path: Path
) -> None:
    script, out = tmp_path / "script.py", tmp_path / "plan.json"
    script.write_text("""
import os, signal, torch
x = torch.ones(64, device="npu")
# The terminal sends it to both, and `plan` goes on.
for pid in (os.getppid(), os.getpid()):
    os.kill(pid, signal.SIGINT)
while True:
    x.add_(1)
""")
    done = python.run(*("-m", "npu_dispatch", "plan", "-o", str(out), str(script)))

    assert done.returncode == 0, done.stderr
    (report,) = json.loads(out.read_text())["reports"]
    assert report["step_is"] == "the whole run"
    assert report["launches"] >= 1 and "interrupted" in report["notes"][0]


def test_a_bag_of_embeddings_is_planned(planned) -> None:
    program = """
import torch
bag = torch.nn.EmbeddingBag(100, 16, mode="sum").npu()
optimizer = torch.optim.SGD(bag.parameters(), 0.1)
ids, offsets = torch.zeros(40, dtype=torch.long).npu(), torch.arange(0, 40, 4).npu()
while True:
    optimizer.zero_grad()
    bag(ids, offsets).mean().backward()
    optimizer.step()
"""
    report = planned(program, 10).report
    assert report["step_is"] == "a step of SGD" and report["steps"] >= 10
    assert "embedding" in " ".join(row["name"] for row in report["operators"])


def test_whole_steps_in_a_graph_are_steps(planned) -> None:
    program = """
import npu_dispatch, torch
model = torch.nn.Linear(64, 64).npu()
optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=True)
step = npu_dispatch.compile_step(
    model, optimizer, torch.nn.MSELoss(), backend="eager")
x = torch.ones(8, 64, device="npu")
while True:
    step(x, x)
"""
    report = planned(program, 10, "--warmup", "6").report
    assert report["step_is"] == "a step of AdamW"
    names = {row["name"]: row["calls"] for row in report["operators"]}
    # A call copies the batch in, and replays once; the optimizer is in the graph.
    assert names["graph replay"] == 1 and report["launches"] <= 5


def test_measured_kernels_go_before_the_spec(planned, reports, tmp_path) -> None:
    def event(name: str, **more: object) -> dict[str, object]:
        return {"ph": "X", "name": name, "pid": 1, "tid": 1, "ts": 10, **more}

    shapes = [[256], [64, 256], [256, 256]]
    trace = tmp_path / "trace.json"
    call = event(
        "aten::addmm",
        cat="cpu_op",
        dur=20,
        args={"External id": 7, "Input Dims": shapes, "Input type": ["float"] * 3},
    )
    kernel = event("gemm", cat="kernel", dur=777, args={"External id": 7})
    trace.write_text(json.dumps({"traceEvents": [call, kernel]}))

    report = planned(TRAINS, 10, "--kernels", str(trace)).report

    rows = {row["name"]: row for row in report["operators"]}
    assert reports[FAST]["measured"] == 0 and 0.7 < report["measured"] < 1
    assert rows["aten::addmm"]["device_us"] == pytest.approx(777, rel=0.01)
    assert rows["aten::addmm"]["measured"] == 1 and rows["aten::mm"]["measured"] == 0


def test_bad_options_are_refused(planned, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text("{}")
    scale = "expected host=NUMBER"
    for options, said in (
        (("--kernels", str(trace)), "record_shapes=True"),
        (("--scale", "host"), scale),
        (("--scale", "host=0"), scale),
        (("--scale", "device=2"), scale),
        (("--scale", "host=fast"), scale),
        (("--topology", "moon"), "no topology 'moon'"),
        (("--topology", "nvl8", "--ranks", "16"), "one host of 8 ranks: found 16"),
        (("--ranks", "0"), "0 is not in the range"),
    ):
        done = planned("", 1, *options)
        assert done.reports is None and done.status == 2, options
        said_there = " ".join(done.err.replace("│", " ").split())
        assert said in said_there, (options, done.err)


STREAM = (0, 0)


def run_of(gap: float, took: float, *, waits: bool = False) -> Run:
    """Launches every `gap`, each task takes `took`; a step is ten tasks."""
    tasks, host_waits, boundaries = [], [], []
    clock = free = 0.0
    for i in range(100):
        clock += gap
        begun = max(clock, free)
        free = begun + took
        where = "first" if i % 10 == 0 else "other"
        task = Task("op", STREAM, i + 1, clock, begun, free, 1, True, where=where)
        tasks.append(task)
        if i % 10 == 9:
            if waits:
                host_waits.append(Wait("item", "line", clock + 0.5, free + 1))
                clock = free + 1
            boundaries.append(clock + 0.5)
    return Run(tasks, host_waits, boundaries)


def test_parts_of_a_step_are_told_apart() -> None:
    def parts(run: Run) -> tuple[float, float, float]:
        r = analyse(run, "test")
        return r.device_bound, r.launch_bound, r.sync_bound

    assert parts(run_of(100, 10)) == pytest.approx((0.1, 0.9, 0), abs=0.01)
    assert parts(run_of(10, 100)) == pytest.approx((1, 0, 0), abs=0.01)
    device, launch, sync = parts(run_of(10, 100, waits=True))
    assert device == pytest.approx(0.989, abs=0.002) and launch == 0
    assert sync == pytest.approx(0.011, abs=0.002)


def test_a_collective_is_waited_for_where_nothing_runs_beside_it() -> None:
    tasks = []
    for i in range(10):
        at = 100.0 * i
        tasks.append(Task("mm", STREAM, i + 1, at, at, at + 40, 1, True))
        # From the middle of the kernel, and 60 behind it.
        reduce = Task("reduce", (0, 1), i + 1, at, at + 20, at + 100, 1, True)
        tasks.append(replace(reduce, collective=True))
    report = analyse(Run(tasks, [], [0.0, 450.0, 900.0]), "test")
    assert report.verdict == "network-bound"
    assert report.network_bound == pytest.approx(0.6)
    assert report.device_bound == pytest.approx(0.4)


def test_a_launch_is_to_blame_for_the_time_before_its_task() -> None:
    report = analyse(run_of(100, 10), "test")
    one, two = sorted(report.blames, key=lambda blame: blame.times)
    assert {blame.reason for blame in report.blames} == {"launches"}
    assert (one.where, one.times, one.idle_us) == ("first", 1, 0.09)
    assert (two.where, two.times) == ("other", 9)
    assert two.idle_us == pytest.approx(9 * 0.09)
    # The host is at a line until it comes to the next launch.
    assert two.host_us == pytest.approx(0.9, rel=0.02)


def test_an_error_that_looks_like_markup_is_shown_as_it_is(capsys) -> None:
    task = Task("add", (0, 0), 1, 1, 2, 3, 1, True, None, "[/x].py:1")
    run = Run([task], [], [0, 9])
    graph = Graph(None, "expected list[int], not [/x] :x:", "")

    show([analyse(run, "npu", graph=graph)])

    shown = " ".join(capsys.readouterr().out.split())
    assert "expected list[int], not [/x] :x:" in shown


# Each is a model, and what it is given.
MODELS = {
    "mlp": (
        "nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512))",
        "torch.ones(256, 512)",
    ),
    "cnn": (
        """nn.Sequential(
    nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(32, 64, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    nn.Linear(64, 10))""",
        "torch.ones(16, 3, 48, 48)",
    ),
    "transformer": (
        """nn.TransformerEncoder(
    nn.TransformerEncoderLayer(128, 4, 512, batch_first=True), 2)""",
        "torch.ones(8, 64, 128)",
    ),
    "lstm": ("First(nn.LSTM(64, 128, 2, batch_first=True))", "torch.ones(16, 32, 64)"),
    "gru": ("First(nn.GRU(64, 128, batch_first=True))", "torch.ones(16, 32, 64)"),
    "depthwise": (
        """nn.Sequential(
    nn.Conv2d(16, 16, 3, groups=16), nn.Hardswish(), nn.Conv2d(16, 64, 1))""",
        "torch.ones(16, 16, 64, 64)",
    ),
    "upsampling": (
        """nn.Sequential(
    nn.Conv2d(4, 16, 3, stride=2, padding=1), nn.GELU(),
    nn.ConvTranspose2d(16, 4, 4, stride=2, padding=1))""",
        "torch.ones(8, 4, 64, 64)",
    ),
    "checkpointed": (
        "nn.Sequential(*(Checkpointed(nn.Linear(256, 256)) for _ in range(8)))",
        "torch.ones(512, 256, requires_grad=True)",
    ),
    "embedding": (
        "nn.Sequential(nn.Embedding(1000, 64), nn.Linear(64, 8))",
        "torch.zeros(64, 32, dtype=torch.long)",
    ),
    "normalised": (
        """nn.Sequential(
    nn.Linear(256, 256), nn.LayerNorm(256), nn.SiLU(), nn.Linear(256, 256),
    nn.Dropout(0.1), nn.Softmax(-1))""",
        "torch.ones(512, 256)",
    ),
}
QUICK = {"mlp", "cnn", "transformer"}

TRAINED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
class First(nn.Module):
    def __init__(self, part):
        super().__init__()
        self.part = part
    def forward(self, x):
        return self.part(x)[0]
class Checkpointed(First):
    def forward(self, x):
        return checkpoint(lambda y: self.part(y).relu(), x, use_reentrant=False)
model, x = MODEL.npu(), GIVEN.npu()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
torch.npu.synchronize()
print("peak", torch.npu.max_memory_allocated())
"""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in QUICK else pytest.mark.nightly)
        for name in MODELS
    ],
)
def test_memory_is_within_five_percent_of_what_the_allocator_takes(
    python, planned, name: str
) -> None:
    model, given = MODELS[name]
    program = TRAINED.replace("MODEL", model).replace("GIVEN", given)

    peak = int(python(program).stdout.split()[-1])

    report = planned(program, 1, "--steps", "2").report
    assert report["peak_allocated"] == pytest.approx(peak, rel=0.05)
