"""What is left of a process that was killed, what tells of it, and how it is called."""

import os
import re
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from subprocess import PIPE

import pytest
import torch
from click.testing import CliRunner

import npu_dispatch
from npu_dispatch import _C
from npu_dispatch.cli import main
from npu_dispatch.observe.judge.describe import dead, postmortem_lines
from npu_dispatch.observe.segment import StatsReader, folders, layout, segment_file
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment.system import has_ended
from npu_dispatch.words import script_name

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
def test_a_child_that_ends_was_not_killed(fresh_python, tmp_path, method):
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
    for name in (path, path.with_name(path.name + folders.SUFFIX)):
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
    torch.npu.synchronize()  # a task that still runs would be named with its line
    with StatsReader(Path(_C.segment_path())) as reader:
        [stream, *_] = reader.streams()
        s = 10**9
        hung = {"retired": 4, "submitted": 5, "last_retired_ns": s, "woken_ns": s}
        works = {"stream": 7, "last_retired_ns": 9 * s}
        reader.streams = lambda: [
            stream._replace(held_by=None, **{**hung, **facts}) for facts in ({}, works)
        ]
        reader.open_waits = list
        told = [
            x for x in postmortem_lines(reader) if re.search(r"stream \d+: task", x)
        ]

    assert told[0].endswith(
        "stream 0: task 4 has not begun; 1 queued, no progress for 8 s or more"
    )
    assert told[1].endswith("stream 7: task 4 has not begun; 1 queued")


def test_a_task_that_has_not_begun_has_not_the_line_of_an_older_one(tmp_path: Path):
    x = torch.ones(1, device="npu")
    for _ in range(layout.RECENT_TASKS):
        x.add_(1)
    torch.npu.synchronize()
    own = Path(_C.segment_path())
    with StatsReader(own) as reader:
        tail = reader._block_of(0, 0) + layout.STREAM.at["tail"]
    copy = bytearray(own.read_bytes())
    (tasks,) = layout.WORD.unpack_from(copy, tail)
    layout.WORD.pack_into(copy, tail, tasks + 1)  # a task more
    (tmp_path / "1").write_bytes(copy)

    with StatsReader(tmp_path / "1") as reader:
        stream = next(s for s in reader.streams() if (s.device, s.stream) == (0, 0))
        assert (stream.depth, stream.running, stream.running_at) == (1, "", "")
        assert reader.recent(0, 0)[-1].task == tasks - 1


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
    assert "No crash record for process 1: it exited normally" in result.output


def test_the_newest_are_kept_and_none_for_longer_than_its_time(tmp_path):
    now = time.time()
    for number in range(folders.KEPT_SEGMENTS + 3):
        path = tmp_path / f"{number}.dead"
        path.touch()
        os.utime(path, (now, now - number))
    old = tmp_path / "77.dead"
    old.touch()
    os.utime(old, (now, now - folders.KEPT_S - 1))
    living = tmp_path / "99"
    living.touch()
    os.utime(living, (0, 0))

    folders.sweep(tmp_path)

    kept = {path.name for path in tmp_path.iterdir()}
    expected = {f"{n}.dead" for n in range(folders.KEPT_SEGMENTS)}
    assert kept == {*expected, "99"}


def test_a_living_process_is_not_taken_for_a_dead_one():
    path = Path(_C.segment_path())
    assert path not in dead()
    with StatsReader(path) as reader:
        assert reader.info.pid == os.getpid()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("python train.py", "train.py"),
        ("/usr/bin/python3.11 -u -X dev /long/way/train.py --lr 1", "train.py"),
        ("python -m pytest tests", "-m pytest"),
        ("python -W ignore -m torch.distributed.run a.py", "-m torch.distributed.run"),
        ("python -c print", "python -c"),
        ("python", "python"),
        ("python /v/bin/npu-dispatch run --torch-npu examples/gpt.py 3", "gpt.py"),
        ("npu-dispatch run --json -o out.json train.py", "train.py"),
        ("python -m npu_dispatch sanitize -m package.train", "-m package.train"),
        ("python -m npu_dispatch serve", "-m npu_dispatch"),
        ("/v/bin/python /v/bin/npu-dispatch serve", "npu-dispatch"),
        ("/opt/server --port 1", "server"),
        ("", ""),
    ],
)
def test_a_command_has_a_name(command, name):
    assert script_name(command.split(" ")) == name


def test_a_worker_of_multiprocessing_is_told_from_python_c():
    code = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)"

    command = ["python", "-c", code, "--multiprocessing-fork"]
    assert script_name(command) == "multiprocessing"


def test_a_process_is_named_by_its_segment_also_when_it_is_dead(tmp_path):
    script = tmp_path / "train it.py"
    script.write_text(
        "import os, signal, torch\n"
        "torch.ones(2, device='npu')\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    child = subprocess.Popen([sys.executable, "-u", script, "--lr", "1"])
    child.wait()

    [path] = dead(child.pid)
    with StatsReader(path) as reader:
        info, lines = reader.info, list(postmortem_lines(reader))

    assert info.name == "train it.py"
    assert info.command[-2:] == ("--lr", "1")
    assert info.package == npu_dispatch.__version__
    assert torch.__version__.startswith(info.torch)
    assert lines[0].startswith(f"process {child.pid}, train it.py")
