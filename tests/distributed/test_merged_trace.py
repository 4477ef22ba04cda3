"""Timelines of several ranks: on one clock, and joined at their collectives."""

import json
import subprocess
import sys
import zlib
from base64 import b64encode
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from ranks import HEAD
from timelines import Perfetto, chrome, traced_program

from npu_dispatch.cli import main
from npu_dispatch.observe.trace import trace
from npu_dispatch.observe.trace.chrome import load
from npu_dispatch.observe.trace.job import as_one_job, clocks_of
from npu_dispatch.observe.trace.trace_file import TraceError
from npu_dispatch.observe.trace.tracks import (
    Call,
    Host,
    Joins,
    Process,
    Slice,
    StreamTrack,
)

ROUNDS = 20
# They take turns to come last, by what they compute before they call.
PROGRAM = f"""
join("hccl")
x, t = torch.ones(600, 600).npu(), torch.ones(1000).npu()
for turn in range({ROUNDS}):
    for _ in range(5 * ((rank + turn) % 2)):
        x @ x
    dist.all_reduce(t)
torch.npu.synchronize()
if rank == 0:
    dist.isend(t, 1).wait()
else:
    dist.irecv(t, 0).wait()
torch.npu.synchronize()
"""


BOTH = """
import subprocess, sys
from pathlib import Path
here = Path(__file__).parent
ranks = [
    subprocess.Popen([sys.executable, here / "rank.py", str(r), "2", here / "store"])
    for r in range(2)
]
sys.exit(max(rank.wait() for rank in ranks))
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory) -> list[Process]:
    """The two ranks of the program, the second one first."""
    folder = tmp_path_factory.mktemp("job")
    (folder / "rank.py").write_text(HEAD + PROGRAM)
    processes = traced_program(folder, BOTH)
    return sorted(processes, key=lambda p: -(p.rank or 0))


def calls(process: Process) -> list[Slice]:
    return [t for track in process.streams for t in track.slices if t.call]


def test_a_task_knows_which_collective_it_was(traced):
    for process in traced:
        reduced = [t for t in calls(process) if t.name == "hccl:all_reduce"]
        assert [t.call.seq for t in reduced] == list(range(ROUNDS))
        assert {t.call.bytes for t in reduced} == {4000}
        [message] = [t for t in calls(process) if t.call.is_message]
        assert message.name == ("hccl:recv" if process.rank else "hccl:send")
    tokens = {t.call.token for process in traced for t in calls(process)}
    assert len(tokens) == 1


def test_ranks_of_one_host_come_in_order_on_its_clock(traced):
    job, clocks = as_one_job(traced)

    assert [p.rank for p in job] == [0, 1]
    assert [p.name.split(":")[0] for p in job] == ["rank 0", "rank 1"]
    assert [clock.offset_ns for clock in clocks] == [0]
    assert [p.streams for p in job] == [p.streams for p in reversed(traced)]
    # Nobody ends a collective before everybody has begun it.
    for one, other in zip(calls(job[0]), calls(job[1]), strict=True):
        if not one.call.is_message:
            assert max(one.started, other.started) <= min(one.ended, other.ended)


def test_who_came_last_is_told_with_each_collective(traced):
    job, _ = as_one_job(traced)
    joins = Joins(job)
    last = 0
    for process in job:
        for track in process.streams:
            for task in track.slices:
                told = joins.details(
                    (process.pid, track.device, track.stream, task.position)
                )
                assert bool(told) == bool(task.call and not task.call.is_message)
                if told:
                    waited = told["arrived_after_ns"], told["waited_for_last_ns"]
                    assert min(waited) == 0 <= max(waited)
                    last += told["last_rank"] == (task.call.seq + 1) % 2
    assert last > ROUNDS  # of two for each


def test_chrome_and_perfetto_join_the_same_collectives(traced, tmp_path):
    said = list(trace.save(traced, tmp_path / "job.json"))
    assert any("one clock" in line and "skew 0" in line for line in said)
    assert any(line.startswith("rank 1 came last to") for line in said)

    read = chrome(traced, tmp_path)
    assert len(read["otherData"]["clocks"]) == 1
    ends = defaultdict(list)
    for event in read["traceEvents"]:
        if event.get("cat") == "collective":
            ends[event["id"]].append((event["ts"], event["ph"], event["pid"]))
    assert len(ends) == ROUNDS
    for arrow in ends.values():
        assert [kind for _, kind, _ in sorted(arrow)] == ["s", "f"]
        assert len({pid for _, _, pid in arrow}) == 2

    found = Perfetto(traced, tmp_path)
    joined = [
        {found.tracks[uuid].parent_uuid or uuid for uuid in arrow}
        for arrow in found.flows.values()
    ]
    assert sum(len(processes) == 2 for processes in joined) == ROUNDS
    assert ends.keys() <= found.flows.keys()
    notes = [note for track in found.notes.values() for note in track]
    assert [note["skew_ns"] for note in notes if "skew_ns" in note] == [0]


def test_what_was_saved_is_read_back(traced, tmp_path):
    for process in traced:
        list(trace.save([process], tmp_path / f"{process.rank}.json"))

    back = {process.rank: process for process in load([tmp_path])}

    for process in traced:
        assert back[process.rank] == process


def earlier(task: Slice, by: int) -> Slice:
    times = ("submitted", "started", "ended")
    return replace(task, **{name: getattr(task, name) - by for name in times})


def elsewhere(process: Process, by: int) -> Process:
    """Return the process as a host would save it whose clock is `by` behind."""

    moved = [
        replace(track, slices=[earlier(task, by) for task in track.slices])
        for track in process.streams
    ]
    host = Host("other", "another start", process.host.unix_offset_ns + by)
    return replace(process, streams=moved, host=host)


def merged(out: Path, *options: str) -> str:
    done = CliRunner().invoke(main, ["trace", "--all-ranks", "-o", str(out), *options])
    assert done.exit_code == 0, done.output
    return done.output


def test_a_clock_of_another_host_is_set_by_the_collectives(traced, tmp_path):
    by = 86_400_000_000_123
    second, first = traced
    far = replace(elsewhere(second, by), pid=first.pid)
    (tmp_path / "hosts").mkdir()
    list(trace.save([first], tmp_path / "hosts" / "a.json"))
    list(trace.save([far], tmp_path / "hosts" / "b.json"))
    out = tmp_path / "job.json"
    said = merged(out, str(tmp_path / "hosts"))

    [mine, its] = clocks_of([first, far])
    assert (mine.offset_ns, mine.within_ns) == (0, 0)
    assert abs(its.offset_ns - by) <= its.within_ns < 100_000_000
    assert its.by == f"by {ROUNDS} collectives"
    assert its.text in said.splitlines()
    about = json.loads(out.read_text())["otherData"]
    assert about["clocks"] == [mine.text, its.text]
    again = load([out])
    assert len({process.pid for process in again}) == 2
    job, clocks = as_one_job(again)  # a file that was merged is merged again
    assert [clock.offset_ns for clock in clocks] == [0, its.offset_ns]
    assert [process.moved_by_ns for process in job] == [0, its.offset_ns]
    for one, far_one in zip(calls(job[0]), calls(job[1]), strict=True):
        other = earlier(far_one, -its.offset_ns)
        if not one.call.is_message:
            assert max(one.started, other.started) <= min(one.ended, other.ended)


def test_hosts_without_a_common_collective_are_set_by_their_dates():
    def rank(number: int, group: str, host: Host) -> Process:
        call = Call(group, group, 0, False, 4)
        task = Slice("hccl:all_reduce", 0, 1, 2, 3, 1, call=call)
        track = StreamTrack(0, 0, [task])
        return Process(number + 1, "train.py", [track], rank=number, host=host)

    ranks = [rank(0, "one", Host("a", "a", 1000)), rank(1, "two", Host("b", "b", 1700))]

    _, clock = clocks_of(ranks)

    assert (clock.offset_ns, clock.within_ns) == (700, None)
    assert "dates" in clock.text


def holding(value: object) -> str:
    """Return a file in whose place for processes is something else."""
    packed = b64encode(zlib.compress(json.dumps(value).encode())).decode()
    return json.dumps({"otherData": {"npu_dispatch": packed}})


@pytest.mark.parametrize(
    "text", ["[1]", *map(holding, ({"a": 1}, [["x"] * 8], [[1]], "x"))]
)
def test_a_file_that_is_no_timeline_is_named(tmp_path, text):
    (tmp_path / "notes.json").write_text(text)

    with pytest.raises(TraceError, match=r"notes\.json: expected a timeline"):
        load([tmp_path])
    (tmp_path / "notes.json").unlink()
    with pytest.raises(TraceError, match="no timeline to merge"):
        load([tmp_path])


def test_live_ranks_are_found_and_traced(ranks_at_work, tmp_path):
    out, common = tmp_path / "job.json", set()
    while not common:  # a busy machine may let none of them call for a second
        merged(out, "--last", "1s")
        found = {p.pid: p for p in load([out])}
        assert set(ranks_at_work) <= found.keys()
        ours = [found[pid] for pid in ranks_at_work]
        assert [p.rank for p in ours] == [0, 1]
        common = set.intersection(*({t.call.seq for t in calls(p)} for p in ours))


def test_a_process_that_has_ended_since_it_was_listed_is_left_out(going):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    left, killed = going(AT_WORK)
    killed.kill()  # which leaves its file of records
    killed.wait()

    found = trace.of_processes([ended.pid, killed.pid, left.pid, ended.pid], 0.1)

    assert [process.pid for process in found] == [left.pid]
    with pytest.raises(TraceError, match="no process that uses npu"):
        trace.of_processes([ended.pid], 0.1)


AT_WORK = """
join("hccl")
t = torch.ones(10).npu()
dist.all_reduce(t)
print("ready", flush=True)
while True:
    dist.all_reduce(t)
    torch.npu.synchronize()
"""


@pytest.fixture
def ranks_at_work(going):
    """The numbers of two processes that call collectives."""
    return [process.pid for process in going(AT_WORK)]
