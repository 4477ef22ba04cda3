"""What ranks called is told from outside, also while they hang, and on torch's page."""

import os
import pickle
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest
from click.testing import CliRunner
from interpreter import Forked, environment, shared_zygote
from own_mounts import in_own_mounts
from ranks import HEAD, make_ranks
from torch.distributed.debug._frontend import Response
from torch.distributed.flight_recorder.components import (
    builder,
    config_manager,
    loader,
    utils,
)

from npu_dispatch.cli import main
from npu_dispatch.observe.judge import flight_recorder
from npu_dispatch.observe.judge.flight_recorder import from_segments

HANG = """
join(seconds=600)
t = torch.ones(4).npu()
dist.all_reduce(t)
torch.npu.synchronize()
def call():
    if rank == 0:
        store().wait(["called"])  # what is told of a hang is told once
        dist.all_reduce(t, async_op=True)  # the first line that waits
    elif rank == 1:
        dist.broadcast(t, 0, async_op=True)  # the other
        store().set("called", "")
call()
print("ready", flush=True)
sys.stdin.readline()
"""


def dump(*args: str) -> str:
    result = CliRunner().invoke(main, ["dump", "--all-ranks", *args])
    assert result.exit_code == 0, result.output
    return result.output


def job_of(ranks, waits: str) -> str:
    """Return what is said of a job, among others, once this pattern is in it."""
    text = ""
    while not re.search(waits, text):
        assert all(process.poll() is None for process in ranks)
        jobs = re.split(r"(?m)^(?=job of)", dump())
        mine = [job for job in jobs if re.search(rf"\b{ranks[0].pid}\b", job)]
        text = next(iter(mine), "")
    return text


def heard(process, words: str) -> str:
    """Return what a process says on its standard error, up to these words."""
    text = ""
    while words not in text:
        line = process.stderr.readline()
        assert line, text
        text += line
    return text


def test_a_hang_is_told_by_rank_collective_and_line(going, tmp_path):
    """By a reader from outside, by files that were saved, and by the watchdog."""
    prefix = str(tmp_path / "trace_")
    ranks = going(HANG, 3, NPU_DISPATCH_WATCHDOG="1s", TORCH_FR_DUMP_TEMP_FILE=prefix)
    line, other = (
        HEAD.count("\n") + HANG[: HANG.index(mark)].count("\n") + 1
        for mark in ("# the first", "# the other")
    )
    waits = (
        r"rank 0 has been waiting for \d+ s in "
        rf"all_reduce #1 \(<string>:{line} in call\)"
    )
    text = job_of(ranks, waits)

    assert "job of ranks 0, 1, 2" in text
    assert re.search(
        r"verdict: rank 1 \(process \d+\) calls broadcast #1 \(.*\) where rank 0 "
        r"\(process \d+\) calls all_reduce #1 \(.*\): different collectives",
        text,
    ), text
    assert (
        f"rank 1 is at broadcast #1 (<string>:{other} in call): different collectives"
        in text
    ), text
    assert "rank 2 has not called #1; its last was all_reduce #0" in text, text

    pids = {process.pid for process in ranks}
    for one in from_segments():
        if one["pid"] in pids and one["rank"] != 1:
            flight_recorder.save(one, str(tmp_path / "dumps" / "rank_"))
    text = dump(str(tmp_path / "dumps"))
    assert "rank 0 has been waiting for" in text
    assert "rank 1 has no process or dump here" in text
    assert "rank 2 has not called #1" in text

    text = heard(ranks[0], "rank 2 has not called #1")
    assert "verdict: rank 1 " in text
    assert "rank 1 is at broadcast #1" in text
    assert flight_recorder.load(Path(f"{prefix}0"))["rank"] == 0


def test_a_dump_that_cannot_be_saved_leaves_nothing_unfinished(tmp_path):
    taken = tmp_path / "rank_0"
    taken.mkdir()

    with pytest.raises(IsADirectoryError):
        flight_recorder.save({"entries": [], "rank": 0}, str(tmp_path / "rank_"))

    assert list(tmp_path.iterdir()) == [taken]


def test_a_recv_that_nobody_answers_is_told(going):
    ranks = going(
        """
join(seconds=600)
t = torch.ones(4).npu()
if rank == 0:
    work = dist.irecv(t, 1)
print("ready", flush=True)
sys.stdin.readline()
""",
        2,
    )

    job_of(
        ranks,
        r"rank 0 has been waiting for \d+ s in recv from rank 1 \(.*\); "
        r"rank 1 has no send for it",
    )


@pytest.mark.nightly  # on a busy machine another rank may be late, too
def test_the_watchdog_tells_of_a_rank_for_which_the_others_wait(going):
    ranks = going(
        """
import time
join()
t = torch.ones(4).npu()
dist.all_reduce(t)
print("ready", flush=True)
while True:
    if rank == 1:
        time.sleep(0.1)
    dist.all_reduce(t)
    torch.npu.synchronize()
""",
        2,
        NPU_DISPATCH_WATCHDOG="1s",
    )

    line = ranks[0].stderr.readline()

    assert re.match(
        r"npu_dispatch: rank 1 \(process \d+\) is slow: the others waited for it in "
        r"\d+ of \d+ calls",
        line,
    ), line


def test_the_watchdog_tells_why_a_collective_failed(going, tmp_path):
    prefix = str(tmp_path / "trace_")
    ranks = going(
        """
join()
dist.all_reduce(torch.ones(4 + rank).npu(), async_op=True)
print("ready", flush=True)
sys.stdin.readline()
""",
        2,
        NPU_DISPATCH_WATCHDOG="60s",
        TORCH_FR_DUMP_TEMP_FILE=prefix,
    )

    for rank, process in enumerate(ranks):
        text = heard(process, "verdict: ")
        assert "npu_dispatch: a collective has failed" in text
        assert re.search(r"verdict: rank 1 .*: different input sizes", text), text
        saved = flight_recorder.load(Path(f"{prefix}{rank}"))
        assert [e["failed"] for e in saved["entries"]] == [True]


def test_a_hang_is_told_where_the_recorder_cannot_be_saved(going, tmp_path):
    (tmp_path / "file").write_text("")
    [process] = going(
        """
join()
torch.npu.current_stream().submit(sys.stdin.readline, name="hold")
print("ready", flush=True)
torch.npu.synchronize()
""",
        1,
        NPU_DISPATCH_WATCHDOG="1s",
        TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "file" / "trace_"),
    )

    text = heard(process, "the flight recorder could not be saved: ")

    assert "npu_dispatch: no progress for " in text and "runs hold" in text


@pytest.mark.parametrize("ends", [False, True], ids=["stays", "ends"])
def test_when_one_rank_fails_every_rank_saves_its_calls(going, tmp_path, ends):
    prefix = str(tmp_path / "trace_")
    going(
        f"""
from npu_dispatch.distributed import DistributedError
join()
t = torch.ones(4).npu()
dist.all_reduce(t)
torch.npu.synchronize()
pair = dist.new_group([0, 1], timeout=timedelta(seconds=1))
print("ready", flush=True)
if rank == 0:
    dist.all_reduce(t, group=pair)  # the other one does not
    try:
        torch.npu.synchronize()
    except DistributedError:
        if {ends}: raise
sys.stdin.readline()
""",
        3,
        TORCH_FR_DUMP_TEMP_FILE=prefix,
    )

    files = [Path(f"{prefix}{rank}") for rank in range(3)]
    while not all(file.exists() for file in files):
        pass
    dumps = [flight_recorder.load(file) for file in files]
    assert [dump["rank"] for dump in dumps] == [0, 1, 2]
    failed = [[e["failed"] for e in dump["entries"]] for dump in dumps]
    assert failed == [[False, True], [False], [False]]


def test_a_program_that_would_save_its_calls_ends_well(ranks, tmp_path):
    """Its group is there until then, and so is the thread that waits for a failure."""
    ranks(
        """
join()
dist.all_reduce(torch.ones(4).npu())
""",
        TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "trace_"),
    )


def test_the_interpreter_finds_no_thread_of_ours_at_its_end(ranks, tmp_path):
    ranks(
        """
import atexit, threading
join()
dist.all_reduce(torch.ones(4).npu())
names = {thread.name for thread in threading.enumerate()}
assert {"npu-host-place", "npu-save-calls"} <= names, names
atexit._run_exitfuncs()
assert threading.enumerate() == [threading.main_thread()]
""",
        TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "trace_"),
    )


SAVE = """
import pickle, time
from npu_dispatch.distributed import dump_flight_recorder
def save(name):
    os.makedirs(f"{FOLDER}/{name}", exist_ok=True)
    with open(f"{FOLDER}/{name}/rank_{rank}", "wb") as file:
        file.write(dump_flight_recorder())
"""
MATCHED = """
join(seconds=70)
before = time.time_ns()
dist.all_reduce(torch.ones(2, 3, dtype=torch.bfloat16).npu(), dist.ReduceOp.MAX)
torch.npu.synchronize()
with open(f"{FOLDER}/times{rank}", "w") as file:
    file.write(f"{before} {time.time_ns()}")
n = size
t, whole = torch.ones(4).npu(), torch.ones(4 * n).npu()
ts = lambda: [torch.ones(4).npu() for _ in range(n)]
dist.all_reduce(t)
dist.broadcast(t, 1)
dist.reduce(t, 0)
dist.all_gather(ts(), t)
dist.all_gather_into_tensor(whole, t)
dist.gather(t, ts() if rank == 0 else None, 0)
dist.scatter(t, ts() if rank == 0 else None, 0)
dist.reduce_scatter(t, ts())
dist.reduce_scatter_tensor(t, whole)
dist.all_to_all_single(whole, whole.clone())
dist.barrier()
dist.send(t, 1) if rank == 0 else dist.recv(t, 0)
waited(swap(t, t.clone(), 1 - rank))
half = dist.new_group([0, 1], group_desc="pair")
dist.all_reduce(t, group=half)
torch.npu.synchronize()
save("calls")
# A call that has not ended stays, however many follow.
if rank == 0:
    waits = dist.irecv(t, 1)
small = torch.ones(1).npu()
alone = [dist.new_group([r]) for r in range(size)][rank]
for _ in range(3000):
    dist.all_reduce(small, group=alone)
entries = pickle.loads(dump_flight_recorder())["entries"]
assert len(entries) <= 1024, len(entries)
if rank == 0:
    open_ones = [e for e in entries if e["is_p2p"] and e["state"] != "completed"]
    assert len(open_ones) == 1, open_ones
store().set(f"seen{rank}", "1")
if rank == 1:
    store().wait(["seen0"])
    dist.send(t, 0)
else:
    waits.wait()
torch.npu.synchronize()
"""
WRONG = """
join()
t = torch.ones(4).npu()
dist.all_reduce(t)
failure(lambda: dist.all_reduce(t if rank == 0 else torch.ones(5).npu()))
save("wrong")
os._exit(0)
"""


@pytest.fixture(scope="module")
def dumped(tmp_path_factory) -> Path:
    """The folder of the dumps of two ranks."""
    folder = tmp_path_factory.mktemp("dumped")
    python = Forked(folder, shared_zygote())
    ranks = make_ranks(python, folder)
    for calls in (MATCHED, WRONG):
        ranks(f"FOLDER = {str(folder)!r}" + SAVE + calls)
    return folder


def analysed(folder: Path):
    """Return what torch's own analysis makes of the files."""
    args = config_manager.JobConfig().parse_args([str(folder), "-p", "rank_"])
    details, version = loader.read_dir(args)
    return builder.build_db(details, args, version)


def test_torchs_analysis_finds_all_calls_matched(dumped, monkeypatch):
    # It prints with a package that it does without elsewhere, but not here.
    monkeypatch.setattr(utils, "tabulate", str, raising=False)
    db = analysed(dumped / "calls")

    found = [call.collective_name for call in db.collectives]
    wrong = [call for call in db.collectives if not call.pass_check]
    assert not wrong, wrong
    for name in ("all_reduce", "all_gather", "_all_gather_base", "reduce_scatter",
                 "_reduce_scatter_base", "gather", "scatter", "broadcast", "reduce",
                 "all_to_all", "barrier"):  # fmt: skip
        assert f"hccl:{name}" in found, found
    assert {group.desc for group in db.groups} == {"default_pg", "pair"}


def test_torchs_analysis_finds_ranks_that_disagree(dumped):
    db = analysed(dumped / "wrong")

    assert [call.pass_check for call in db.collectives] == [True, False]


def test_times_sizes_and_states_of_an_entry_are_the_calls(dumped):
    before, after = map(int, (dumped / "times0").read_text().split())
    entry = pickle.loads((dumped / "calls/rank_0").read_bytes())["entries"][0]

    slack = 20_000_000  # between two clocks that were read together once
    order = [
        before - slack,
        entry["time_created_ns"],
        entry["time_discovered_started_ns"],
        entry["time_discovered_completed_ns"],
        after + slack,
    ]
    assert order == sorted(order)
    assert entry["state"] == "completed" and entry["reduction"] == "MAX"
    assert entry["input_sizes"] == entry["output_sizes"] == [[2, 3]]
    assert entry["input_dtypes"] == entry["output_dtypes"] == ["BFloat16"]
    assert entry["timeout_ms"] == 70_000 and entry["collective_seq_id"] == 0


def test_a_file_that_is_no_dump_is_refused_and_runs_nothing(tmp_path):
    class Bomb:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "exploded"),)

    file = tmp_path / "rank_0"
    file.write_bytes(pickle.dumps(Bomb()))

    result = CliRunner().invoke(main, ["dump", "--all-ranks", str(file)])

    assert result.exit_code == 1 and "not a flight recorder's dump" in result.output
    assert not (tmp_path / "exploded").exists()


PROGRAM = """
import json, urllib.error, urllib.request
from torch._C._distributed_c10d import _WorkerServer
join()
server = _WorkerServer("::", 0)
def ask(arguments=""):
    at = f"http://localhost:{server.port}/handler/dump_nccl_trace_json?{arguments}"
    try:
        with urllib.request.urlopen(at, data=b"") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
"""


def test_torchs_page_is_given_the_calls_and_shows_them(ranks, monkeypatch):
    found = ranks(
        PROGRAM
        + """
t = torch.ones(4).npu()
dist.all_reduce(t)
dist.broadcast(t, 1)
torch.npu.synchronize()
status, done = ask()
assert status == 200 and len(json.loads(done)["entries"]) == 2, done
work = dist.all_reduce(t, async_op=True) if rank == 0 else None
status, text = ask("onlyactive=true")
print(status, text)
if rank == 1:
    dist.distributed_c10d._get_default_store().wait(["asked"])
    dist.all_reduce(t)
else:
    dist.distributed_c10d._get_default_store().set("asked", "")
torch.npu.synchronize()
server.shutdown()
"""
    )
    # What the page's tables are made with, which nothing here needs.
    stub = types.ModuleType("tabulate")
    stub.tabulate = lambda *_, **_more: ""
    monkeypatch.setitem(sys.modules, "tabulate", stub)
    from torch.distributed.debug._debug_handlers import FlightRecorderHandler

    answers = [result.stdout.partition(" ") for result in found]
    responses = [Response(int(status), text) for status, _, text in answers]
    entries = [response.json()["entries"] for response in responses]
    assert [len(each) for each in entries] == [1, 0]
    db = FlightRecorderHandler._build_db(["http://a", "http://b"], responses)

    assert [group.desc for group in db.groups] == ["default_pg"]
    [call] = db.collectives
    assert call.collective_name == "hccl:all_reduce"
    assert call.missing_ranks == {1}
    assert entries[0][0]["name"] == "all_reduce"


def test_a_process_in_no_group_says_so(python):
    done = python(
        PROGRAM.replace("join()", "")
        + """
status, text = ask()
assert status == 404 and "no group" in text, (status, text)
server.shutdown()
"""
    )
    assert not done.returncode, done.stderr


# A rank that is process 1 of its container, and what its watchdog takes for its job.
CONTAINED = """
import json, sys, torch, torch.distributed as dist
from npu_dispatch.observe.judge.watchdog import _job
from npu_dispatch.observe.segment.listing import Processes
dist.init_process_group("hccl", init_method=f"file://{sys.argv[1]}", rank=0,
    world_size=1)
dist.all_reduce(torch.ones(3).npu())
torch.npu.synchronize()
print("joined", flush=True)
for line in sys.stdin:
    with Processes(pid=1) as processes:
        [view] = processes.refresh()
    print(json.dumps([dump["process"]["id"] for dump in _job(view)]), flush=True)
"""
CONTAINERS = """
import json, subprocess, sys
import click
from npu_dispatch.cli.watch import _ranks_traced
both = [
    subprocess.Popen(
        ["unshare", "-pf", "--mount-proc", sys.executable, "-c", sys.argv[1], meet],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    for meet in sys.argv[2:]
]
assert [one.stdout.readline() for one in both] == ["joined\\n"] * 2
for one in both:
    print("job", file=one.stdin, flush=True)
    assert json.loads(one.stdout.readline()) == ["1"]
try:
    _ranks_traced([], 0.1)
except click.ClickException as error:
    print(error)
for one in both:
    one.communicate(timeout=60)
"""


@pytest.mark.nightly
def test_processes_of_one_number_in_two_containers_are_two(tmp_path):
    world = in_own_mounts("mount -t tmpfs -o mode=1777 tmpfs /dev/shm")
    places = [str(tmp_path / name) for name in ("one", "other")]

    done = subprocess.run(
        [*world, sys.executable, "-c", CONTAINERS, CONTAINED, *places],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "no process here is in a group of ranks"
