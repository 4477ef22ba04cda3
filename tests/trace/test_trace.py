"""Timelines: what a traced process did, in both formats."""

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from timelines import Perfetto, chrome, traced_program

from npu_dispatch import _C
from npu_dispatch.observe.trace import trace
from npu_dispatch.observe.trace.trace_file import TraceError, TraceFile, trace_path
from npu_dispatch.observe.trace.tracks import Counter, Process, Slice, StreamTrack

ROUNDS = 50
PROGRAM = f"""
import torch, npu_dispatch
s = torch.npu.Stream()
x = torch.ones(64, 64, device="npu")
for i in range({ROUNDS}):
    y = (x @ x).relu()
    event = torch.npu.current_stream().record_event()
    s.wait_event(event)
    with torch.npu.stream(s):
        z = y.neg()
        y.record_stream(s)
    s.synchronize()
bad = torch.tensor([99]).npu()
x[bad]
try: torch.npu.synchronize()
except IndexError: torch.npu.clear_error()
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory):
    """A program on two streams, where one waits for the other in each round."""
    return traced_program(tmp_path_factory.mktemp("trace"), PROGRAM)


def one(traced):
    (process,) = traced
    assert process.name.split()[-1].endswith("/program.py")
    first, second = process.streams
    assert (first.stream, first.lost, second.lost) == (0, 0, 0)
    return first, second


def test_every_task_is_there_once_in_its_order(traced):
    for track in one(traced):
        positions = [task.position for task in track.slices]
        assert positions == list(range(len(positions)))
    names = [task.name for task in one(traced)[0].slices]
    assert names.count("aten::mm") == names.count("aten::relu") == ROUNDS


def test_tasks_of_a_stream_do_not_overlap_and_start_after_submission(traced):
    for track in one(traced):
        for task in track.slices:
            assert task.submitted <= task.started <= task.ended
        for task, after in pairwise(track.slices):
            assert task.ended <= after.started


def test_a_task_names_the_line_that_launched_it(traced):
    first, second = one(traced)
    source = PROGRAM.split("\n")
    said = {"aten::mm": "@", "aten::relu": "relu()", "aten::neg": "neg()"}
    for task in [*first.slices, *second.slices]:
        file, line = task.line.split(" in ")[0].rsplit(":", 1)
        assert file.endswith("program.py")
        assert said.get(task.name, "") in source[int(line) - 1]


def test_failed_tasks_are_marked(traced):
    outcomes = [task.outcome for task in one(traced)[0].slices]
    assert outcomes.count("failed") == 1


def test_a_wait_ends_after_what_it_waited_for(traced):
    first, second = one(traced)
    waits = [task for task in second.slices if task.waited_for]
    assert waits
    for task in waits:
        device, stream, number = task.waited_for
        assert (device, stream) == (0, 0)
        assert first.slices[number - 1].ended <= task.ended


def test_chrome_json_has_slices_arrows_and_counters(traced, tmp_path):
    events = chrome(traced, tmp_path)["traceEvents"]
    by_kind = defaultdict(list)
    for event in events:
        by_kind[event["ph"]].append(event)
    tasks = sum(len(track.slices) for track in one(traced))
    assert len(by_kind["X"]) == 2 * tasks  # submitted, and run
    assert len(by_kind["C"]) >= tasks
    begun = {event["id"]: event for event in by_kind["s"]}
    ended = {event["id"]: event for event in by_kind["f"]}
    assert len(begun) == len(by_kind["s"])
    assert begun.keys() == ended.keys()
    assert all(begun[i]["ts"] <= ended[i]["ts"] for i in begun)
    slices = defaultdict(list)
    for event in by_kind["X"]:
        slices[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for track in slices.values():
        for (_, end), (begin, _) in pairwise(sorted(track)):
            assert end <= begin + 1e-6  # microseconds; nanoseconds are exact
    # Every arrow begins and ends inside of a slice of its track.
    for event in by_kind["s"] + by_kind["f"]:
        near = (event["ts"] - 1e-6, event["ts"] + 1e-6)
        assert any(b <= near[1] and near[0] <= e for b, e in slices[event["tid"]])


def test_chrome_times_begin_with_the_first_of_all_even_a_counter(tmp_path):
    work = Slice("add", 0, submitted=2_000, started=3_000, ended=4_000, depth=1)
    memory = Counter("memory", "bytes", [(1_000, 512), (5_000, 0)])
    process = Process(7, "train.py", [StreamTrack(0, 0, [work])], [memory])

    read = chrome([process], tmp_path)
    times = {event["ts"] for event in read["traceEvents"] if "ts" in event}
    assert (min(times), max(times)) == (0, 4)
    assert read["otherData"]["origin_ns"] == 1_000


def test_perfetto_protobuf_says_the_same(traced, tmp_path):
    found = Perfetto(traced, tmp_path)
    assert {len(ends) for ends in found.flows.values()} == {2}
    for track in one(traced):
        tasks = track.slices
        ran = [(task.name, task.started, task.ended) for task in tasks]
        assert found.slices[track.name] == ran
        depths = [(task.ended, task.depth) for task in tasks]
        assert found.counters[f"{track.name} depth"] == depths
        notes = [(note["task"], note["queued_ns"]) for note in found.notes[track.name]]
        queued = [(task.position, task.started - task.submitted) for task in tasks]
        assert notes == queued


def test_two_processes_share_no_track_and_no_arrow(traced, tmp_path):
    other = Process(traced[0].pid + 1, "other", traced[0].streams)
    found = Perfetto([*traced, other], tmp_path)
    assert {len(ends) for ends in found.flows.values()} == {2}


def test_this_process_is_traced_while_it_runs_and_not_afterwards():
    torch.npu.init()
    tasks = 0

    def work(_seconds):
        nonlocal tasks
        for _ in range(40):  # one of them is sampled: the launcher looks
            _C.submit_nothing()
            torch.npu.synchronize()
        for _ in range(1000):
            _C.submit_nothing()
        torch.npu.synchronize()
        tasks += 1040

    before = time.monotonic_ns()
    process = trace.of_process(os.getpid(), 0.2, wait=work)
    after = time.monotonic_ns()
    (track,) = (t for t in process.streams if t.stream == 0)
    assert tasks - 40 <= len(track.slices) <= tasks
    assert before <= track.slices[0].submitted
    assert track.slices[-1].ended <= after
    positions = [task.position for task in track.slices]
    assert positions == list(range(positions[0], positions[0] + len(positions)))
    work(0)
    with TraceFile(trace_path(os.getpid())) as file:
        file.skip()
        work(0)
        file.read()
        assert not any(ring.chunks for ring in file.rings.values())


def test_each_of_two_who_record_at_once_gets_all_of_its_own_time():
    x = torch.ones(3, device="npu")
    torch.npu.synchronize()
    launched = {"outer": 0, "inner": 0}

    def launch(who):
        if launched[who] == 5000:
            return  # more than the process keeps while nobody reads would be lost
        for _ in range(100):
            x.add_(1)
        torch.npu.synchronize()
        launched[who] += 100

    def inner(_):
        launch("inner")

    recorded = []

    def outer(_):
        launch("outer")
        if not recorded:
            recorded.append(trace.of_process(os.getpid(), 0.2, wait=inner))

    recorded.append(trace.of_process(os.getpid(), 0.5, wait=outer))

    def tasks(process):
        slices = (s for stream in process.streams for s in stream.slices)
        return sum(s.name.startswith("aten::add_") for s in slices)

    within, whole = recorded
    everything = sum(launched.values())
    assert tasks(within) == launched["inner"] > 100
    # The launcher looks now and then whether it is to keep records.
    assert everything - 200 <= tasks(whole) <= everything
    with TraceFile.of_process(os.getpid()) as file:
        assert not file.wanted


def test_a_reader_that_comes_late_knows_how_much_it_lost():
    torch.npu.init()
    with TraceFile(trace_path(os.getpid())) as file:
        file.wanted = True
        try:
            for _ in range(100):
                _C.submit_nothing()
            torch.npu.synchronize()
            file.skip()
            n = 70_000
            for _ in range(n):
                _C.submit_nothing()
            torch.npu.synchronize()
            file.read()
        finally:
            file.wanted = False
        for _ in range(32):
            _C.submit_nothing()
        torch.npu.synchronize()
        ring, records = next(
            (r, rows) for r, rows in file.all_rings() if (r.device, r.stream) == (0, 0)
        )
        assert len(records) + ring.lost == n
        assert len(records) == 65_535
        assert (records["position"][1:] - records["position"][:-1] == 1).all()
        del records


def test_the_command_passes_on_the_exit_status(tmp_path, child_environment):
    out = tmp_path / "t.json"
    own = "import torch, sys; torch.ones(2, device='npu').add(1); sys.exit(7)"
    command = [sys.executable, "-m", "npu_dispatch", "trace", "-o", str(out), "--"]
    command += [sys.executable, "-c", own]
    env = child_environment()
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    assert done.returncode == 7, done.stderr
    assert "tasks" in done.stderr
    assert json.loads(out.read_text())["traceEvents"]


def test_a_process_without_npu_is_named(tmp_path):
    with pytest.raises(TraceError, match="no process that uses npu"):
        trace.of_process(1, 1.0)
    short = tmp_path / "short"
    short.write_bytes(b"NPU")
    with pytest.raises(TraceError, match="too short"):
        TraceFile(short)
    wrong = tmp_path / "wrong"
    wrong.write_bytes(bytes(4096))
    with pytest.raises(TraceError, match="not a trace file of version 5"):
        TraceFile(wrong)


def test_the_file_of_an_earlier_process_of_this_number_is_nobodys():
    torch.npu.init()
    with subprocess.Popen(["sleep", "600"]) as other:
        left = trace_path(other.pid)  # as a process that was killed leaves it
        try:
            with trace_path(os.getpid()).open("rb") as mine:
                left.write_bytes(mine.read(4096))
                os.truncate(left, os.fstat(mine.fileno()).st_size)  # of holes
            with pytest.raises(TraceError, match="an earlier process of this number"):
                trace.of_past([other.pid], 1.0)
            with pytest.raises(TraceError, match="an earlier process of this number"):
                TraceFile.of_process(other.pid)
        finally:
            left.unlink(missing_ok=True)
            other.kill()
    TraceFile.of_process(os.getpid()).close()


def test_the_file_is_private_and_goes_with_its_process(python):
    code = """
import os, torch; torch.npu.init()
from npu_dispatch.observe.trace.trace_file import trace_path
path = trace_path(os.getpid())
print(path, oct(path.stat().st_mode & 0o777))
"""
    path, mode = python(code).stdout.split()
    assert mode == "0o600"
    assert not Path(path).exists()


def test_the_file_stays_in_the_folder_that_is_asked_for(python, tmp_path):
    (folder := tmp_path / "traces").mkdir()
    python("import torch; torch.npu.init()", NPU_TRACE_DIR=str(folder))

    [path] = folder.iterdir()
    TraceFile(path).close()


def test_the_file_of_a_killed_process_is_laid_aside_by_the_next(python):
    code = """
import os, sys, torch; torch.ones(1, device='npu')
from npu_dispatch.observe.trace.trace_file import trace_path
print(trace_path(os.getpid()), flush=True)
sys.stdin.readline()
"""
    with python.start("-c", code, stdin=PIPE, stdout=PIPE) as child:
        path = child.stdout.readline().strip()
        with Path(path).open("rb") as file:
            python("import torch; torch.ones(1, device='npu')")
            assert Path(path).exists()
            child.kill()
            child.wait()
            python("import torch; torch.ones(1, device='npu')")
            # Any process that starts may have been the next, and few are kept.
            name = str(Path(f"/proc/self/fd/{file.fileno()}").readlink())

    assert name.removesuffix(" (deleted)") == f"{path}.dead"
    Path(f"{path}.dead").unlink(missing_ok=True)
