"""What is left of a process that was killed, and what tells of it."""

from __future__ import annotations

import os
import re
import resource
import signal
import time
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from click.testing import CliRunner

from npu_dispatch import _C
from npu_dispatch.cli import main
from npu_dispatch.observe.judge.postmortem import dead, postmortem_lines
from npu_dispatch.observe.segment import StatsReader, remains, segment_file
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.proc_stat import has_ended

# A kernel of the user's writes where it must not, on the launcher's thread.
PROGRAM = """
import ctypes, os, sys, torch
from pathlib import Path
from npu_dispatch import _C
from npu_dispatch.observe.segment import StatsReader
library = torch.library.Library("postmortem_test", "DEF")
library.define("crash(Tensor x) -> Tensor")
def crash(x):
    if armed:
        with StatsReader(Path(_C.segment_path())) as reader:
            while not reader.open_waits():  # until the main thread waits
                pass
        ctypes.string_at(0)
    return x.clone()
library.impl("crash", crash, "CPU")
library.impl("crash", torch.empty_like, "Meta")
armed = False
x = torch.ones(3, device="npu")
torch.ops.postmortem_test.crash(x)
torch.npu.synchronize()
armed = True
y = x + 1
print("ready", flush=True)
sys.stdin.readline()
torch.ops.postmortem_test.crash(y)  # line 25
torch.npu.synchronize()  # line 26
"""


def test_a_reader_without_descriptors_takes_no_living_process_for_dead():
    torch.ones(1, device="npu")
    path, own = Path(_C.segment_path()), os.getpid()
    with Processes(pid=own) as processes:
        assert [view.info.pid for view in processes.refresh()] == [own]
        room, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, most))
        try:
            processes.refresh()
            ended = has_ended(own)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (room, most))

        assert not ended
        assert path.exists()
        assert [view.info.pid for view in processes.refresh()] == [own]


CHILD = """
import multiprocessing, sys
from pathlib import Path

def work(results):
    import torch
    from npu_dispatch import _C
    results.put((torch.ones(3, device="npu").add(1).tolist(), _C.segment_path()))

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    results = context.SimpleQueue()
    child = context.Process(target=work, args=(results,))
    child.start()
    values, path = results.get()
    child.join()
    left = [p.name for p in Path(path).parent.glob(f"{child.pid}*")]
    print(values, child.exitcode, left)
"""


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_child_of_multiprocessing_that_ends_was_not_killed(
    fresh_python, tmp_path, method
):
    program = tmp_path / "parent.py"
    program.write_text(CHILD)

    with fresh_python.start(str(program), method, stdout=PIPE) as process:
        assert process.stdout.read() == "[2.0, 2.0, 2.0] 0 []\n"


@pytest.fixture
def killed(fresh_python):
    """Start the program; return its number once it has died of its kernel."""
    pipes = {"stdin": PIPE, "stdout": PIPE, "stderr": PIPE}
    with fresh_python.start("-c", PROGRAM, **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.wait(100) == -signal.SIGSEGV
    yield process.pid
    # Whoever finds it dead renames it.
    path = segment_file(process.pid)
    for name in (path, path.with_name(path.name + remains.SUFFIX)):
        name.unlink(missing_ok=True)


def postmortem(*args: str) -> str:
    result = CliRunner().invoke(main, ["postmortem", *args])
    assert result.exit_code == 0, result.output
    return result.output


def test_a_dump_of_a_killed_process_says_where_its_end_is_told(killed):
    result = CliRunner().invoke(main, ["dump", str(killed)])

    assert result.exit_code == 1
    assert f"npu-dispatch postmortem {killed}" in " ".join(result.output.split())


def test_the_last_task_of_a_process_that_crashed_names_operator_and_line(killed):
    text = postmortem(str(killed))

    lines = text.splitlines()
    assert lines[0].startswith(f"process {killed}, python -c, killed; began 20")
    last = [line for line in lines if line.startswith("    task ")][-1]
    assert "postmortem_test::crash" in last
    assert last.endswith("launched at <string>:25 in <module>: not finished")
    assert any("reason device_sync, at <string>:26 in <module>" in x for x in lines)


def test_a_stream_that_had_hung_is_told_from_one_that_worked():
    torch.ones(1, device="npu")
    with StatsReader(Path(_C.segment_path())) as reader:
        [stream, *_] = reader.streams()
        hung = {
            "retired": 4,
            "submitted": 5,
            "last_retired_ns": 10**9,
            "woken_ns": 10**9,
        }
        works = {"stream": 7, "last_retired_ns": 9 * 10**9}
        reader.streams = lambda: [
            stream._replace(held_by=None, **{**hung, **facts}) for facts in ({}, works)
        ]
        reader.open_waits = list
        told = [x for x in postmortem_lines(reader) if re.search(r"stream \d+: was", x)]

    assert told[0].endswith(
        "stream 0: was at task 4, no progress for 8 s or more; 1 queued"
    )
    assert told[1].endswith("stream 7: was at task 4; 1 queued")


def test_what_is_left_survives_those_who_look_for_living_processes(killed):
    before = postmortem(str(killed))
    with Processes() as processes:
        for _ in range(2):
            assert killed not in [view.info.pid for view in processes.refresh()]

    assert not segment_file(killed).exists()
    assert postmortem(str(killed)) == before
    [line] = [x for x in postmortem("--list").splitlines() if f"{killed}, py" in x]
    assert f"process {killed}, python -c, killed; began 20" in line
    assert re.search(r", last noted 20[-0-9: ]+ at <string>:26 in <module>$", line)


def test_it_survives_a_new_process_too(killed, fresh_python):
    before = postmortem(str(killed))

    fresh_python("import torch; torch.ones(2, device='npu').sum().item()")

    assert not segment_file(killed).exists()
    assert postmortem(str(killed)) == before


def test_nobody_left_is_said_so():
    result = CliRunner().invoke(main, ["postmortem", "1"])

    assert result.exit_code == 1
    assert "nothing is left of process 1 that was killed" in result.output


def test_the_newest_are_kept_and_none_for_longer_than_its_time(tmp_path):
    now = time.time()
    for number in range(remains.KEPT_SEGMENTS + 3):
        path = tmp_path / f"{number}.dead"
        path.touch()
        os.utime(path, (now, now - number))
    old = tmp_path / "77.dead"
    old.touch()
    os.utime(old, (now, now - remains.KEPT_S - 1))
    living = tmp_path / "99"
    living.touch()
    os.utime(living, (0, 0))

    remains.sweep(tmp_path)

    kept = {path.name for path in tmp_path.iterdir()}
    expected = {f"{n}.dead" for n in range(remains.KEPT_SEGMENTS)}
    assert kept == {*expected, "99"}


def test_a_living_process_is_not_taken_for_a_dead_one():
    path = Path(_C.segment_path())
    assert path not in dead()
    with StatsReader(path) as reader:
        assert reader.info.pid == os.getpid()
