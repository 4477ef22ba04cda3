"""Segments lie where only this user can have put them, and others read if asked to.

Each program runs with a /dev/shm and a /run/user of its own; containers may share one.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import environment
from own_mounts import in_own_mounts

FOLDER = f"/dev/shm/npu_dispatch-{os.getuid()}"
RUNTIME = f"/run/user/{os.getuid()}"
STRANGER, GROUP = 12345, 4242
PUBLISH = """
import json, os
from npu_dispatch import _C
path = _C.segment_path()
found = os.stat(path) if path else None
told = {"path": path.rpartition("/")[0]}
if found:
    told["file"] = [found.st_gid, oct(found.st_mode & 0o777)]
    around = os.stat(told["path"])
    told["folder"] = [around.st_gid, oct(around.st_mode & 0o777)]
"""
SAY = "print(json.dumps(told))"
# What readers find that were not told of XDG_RUNTIME_DIR.
READ = """
from npu_dispatch.observe.segment.listing import Processes
from npu_dispatch.observe.segment import segment_file
os.environ.pop("XDG_RUNTIME_DIR", None)
with Processes() as processes:
    told["pids"] = [view.info.pid - os.getpid() for view in processes.refresh()]
    told["unreadable"] = len(processes.unreadable)
told["same"] = str(segment_file()) == path
"""


@pytest.fixture(scope="module")
def publish():
    """publish(CODE, SCRIPT, NAME=value): what a program says in such a world."""
    unshare = shutil.which("unshare")
    if os.geteuid():
        pytest.skip("only root gives folders away")
    if not unshare or subprocess.run([unshare, "-m", "true"], check=False).returncode:
        pytest.skip("no mounts of one's own here")
    world = f"""
set -e
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mkdir -p /run/user
mount -t tmpfs -o mode=755 tmpfs /run/user
mkdir -m 700 {RUNTIME}
"""

    def run(code: str, script: str = "", **env: str) -> tuple[dict, str]:
        variables = environment(**env)
        if "XDG_RUNTIME_DIR" not in env:
            variables.pop("XDG_RUNTIME_DIR", None)
        ended = subprocess.run(
            [
                *(unshare, "-m", "sh", "-c", f'{world}{script}\nexec "$@"', "sh"),
                *(sys.executable, "-c", code + SAY),
            ],
            env=variables,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert ended.returncode == 0, ended.stderr
        return json.loads(ended.stdout), ended.stderr

    return run


def test_a_folder_of_ones_own_is_made_for_oneself_only(publish):
    told, said = publish(PUBLISH + READ, XDG_RUNTIME_DIR=RUNTIME)

    assert told["path"] == FOLDER
    assert told["folder"] == [0, "0o700"]
    assert told["file"] == [0, "0o600"]
    assert told["pids"] == [0]
    assert told["same"]
    assert not said


TAKEN = {
    "another user's": (
        f"mkdir -m 777 {FOLDER}; touch {FOLDER}/1; chown {STRANGER} {FOLDER}",
        "belongs to user 12345",
    ),
    "a link": (f"mkdir -m 777 /dev/shm/there; ln -s there {FOLDER}", "Not a directory"),
    "a file": (f"touch {FOLDER}", "Not a directory"),
}


@pytest.mark.parametrize("how", TAKEN)
def test_nothing_is_published_in_a_folder_that_was_taken(publish, how):
    script, why = TAKEN[how]

    told, said = publish(PUBLISH + READ, script)

    assert told["path"] == ""
    assert told["pids"] == []
    assert told["unreadable"] == 0
    assert f"cannot see this one's statistics: {FOLDER}: {why}" in said
    assert said.count(f"{FOLDER} ") == 1  # the reader's warning
    assert "nothing is read from it" in said


@pytest.mark.parametrize("how", TAKEN)
def test_the_sessions_folder_is_used_where_the_usual_one_was_taken(publish, how):
    script, why = TAKEN[how]

    told, said = publish(PUBLISH + READ, script, XDG_RUNTIME_DIR=RUNTIME)

    assert told["path"] == f"{RUNTIME}/npu_dispatch"
    assert told["folder"] == [0, "0o700"]
    assert told["pids"] == [0]
    assert told["same"]
    assert f"{RUNTIME}/npu_dispatch is used, since {FOLDER}: {why}" in said


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (f"chown {STRANGER} {RUNTIME}", "belongs to user 12345"),
        (f"chmod 755 {RUNTIME}", "open to other users"),
        (f"mkdir {RUNTIME}/npu_dispatch; chown 7 {RUNTIME}/*", "belongs to user 7"),
        (f"ln -s /dev/shm {RUNTIME}/npu_dispatch", "Not a directory"),
    ],
)
def test_nothing_is_published_in_another_sessions_folder(publish, spoil, why):
    taken, _ = TAKEN["another user's"]

    told, said = publish(PUBLISH, f"{taken}\n{spoil}", XDG_RUNTIME_DIR=RUNTIME)

    assert told["path"] == ""
    assert why in said


def test_a_folder_of_ones_own_that_others_could_write_is_closed(publish):
    told, said = publish(PUBLISH + READ, f"mkdir {FOLDER}; chmod 1777 {FOLDER}")

    assert told["path"] == FOLDER
    assert told["folder"] == [0, "0o700"]
    assert told["pids"] == [0]
    assert not said


def test_traces_follow(publish):
    code = """
import os, torch
from npu_dispatch.observe.trace.trace_file import TraceFile, trace_path
torch.ones(1, device="npu")
path = trace_path(os.getpid())
with TraceFile(path) as file:
    told = {"path": str(path.parent), "pid": file.pid - os.getpid()}
import json
"""
    taken = f"mkdir /dev/shm/npu_dispatch-trace-{os.getuid()}; chown 7 /dev/shm/npu_*"

    told, _ = publish(code, taken, XDG_RUNTIME_DIR=RUNTIME)

    assert told == {"path": f"{RUNTIME}/npu_dispatch-trace", "pid": 0}


# Another user looks, in a child: `seen` are the processes that it finds.
LOOK = """
from npu_dispatch.observe.segment.listing import Processes
def seen(user, groups, directory=None, **which):
    read, write = os.pipe()
    if not os.fork():
        os.setgroups(groups)
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
        with Processes(directory=directory, **which) as processes:
            pids = [view.info.pid for view in processes.refresh()]
            os.write(write, json.dumps([pids, len(processes.unreadable)]).encode())
        os._exit(0)
    os.wait()
    return json.loads(os.read(read, 4096))
me = os.getpid()
"""


def test_a_group_may_read_where_it_was_named(publish):
    code = f"""{PUBLISH}{LOOK}
assert seen({STRANGER}, [{GROUP}], all_users=True) == [[me], 0]
assert seen({STRANGER}, [{GROUP}]) == [[], 0]
assert seen({STRANGER}, [], all_users=True) == [[], 0]
"""
    told, said = publish(code, NPU_DISPATCH_SEGMENT_GROUP=str(GROUP))

    assert told["folder"] == [GROUP, "0o750"]
    assert told["file"] == [GROUP, "0o640"]
    assert not said


def test_a_group_that_is_none_reads_nothing(publish):
    told, said = publish(PUBLISH, NPU_DISPATCH_SEGMENT_GROUP="no_such_group")

    assert told["folder"] == [0, "0o700"]
    assert told["file"] == [0, "0o600"]
    assert said.count("only this user can see") == 1
    assert "no group is called no_such_group" in said


def test_nobody_speaks_for_anothers_processes(publish):
    """A user can write what it likes, and not that it is another user's process."""
    code = f"""{PUBLISH}{LOOK}
import shutil
theirs = "/dev/shm/npu_dispatch-{STRANGER}"
def copy(folder, owner):
    os.makedirs(folder, exist_ok=True)
    shutil.copy(path, folder)
    os.chmod(f"{{folder}}/{{me}}", 0o644)
    os.chown(f"{{folder}}/{{me}}", owner, owner)
copy(theirs, {STRANGER})
os.chown(theirs, {STRANGER}, {STRANGER})
os.unlink(path)
root = lambda: seen(0, [], all_users=True)
assert root() == [[], 1]
os.chown(f"{{theirs}}/{{me}}", 7, 7)  # nor does a third one, in that folder
assert root() == [[], 1]
os.chown(theirs, 7, 7)  # nor does the folder of another number
assert root() == [[], 0]
os.rename(theirs, "/dev/shm/there")
os.symlink("there", theirs)
assert root() == [[], 0]
"""
    publish(code)


def test_another_users_files_stay_where_they_are(publish):
    code = f"""{PUBLISH}{LOOK}
import shutil
theirs = "/dev/shm/npu_dispatch-{STRANGER}"
os.mkdir(theirs)
dead = os.fork()
if not dead:
    os._exit(0)
os.waitpid(dead, 0)
from npu_dispatch.observe.segment.layout import HEADER
data = bytearray(open(path, "rb").read())
fields = list(HEADER.struct.unpack_from(data))
fields = [dead if field == me else field for field in fields]
HEADER.struct.pack_into(data, 0, *fields)
for folder in (theirs, told["path"]):
    with open(f"{{folder}}/{{dead}}", "wb") as file:
        file.write(data)
os.chown(f"{{theirs}}/{{dead}}", {STRANGER}, {STRANGER})
os.chown(theirs, {STRANGER}, {STRANGER})
assert seen(0, [], all_users=True) == [[me], 0]
assert os.listdir(theirs) == [str(dead)]
assert sorted(os.listdir(told["path"])) == sorted([str(me), f"{{dead}}.dead"])
"""
    publish(code)


# What each container runs, in the order that the driver asks for.
INSIDE = """
import json, os, sys, torch
torch.ones(2).npu().sum().item()
from npu_dispatch import _C
from npu_dispatch.npu.runtime.processes import _processes
from npu_dispatch.observe.segment.listing import Processes
files = [_C.segment_path()]
inodes = [os.stat(path).st_ino for path in files]
event = torch.npu.Event(interprocess=True)
event.record()
print(json.dumps([os.getpid(), *files]), flush=True)
for line in sys.stdin:
    if line == "collect\\n":
        torch.npu.ipc_collect()
        torch.npu.Event(interprocess=True)
    same = [os.stat(path).st_ino for path in files] == inodes
    with Processes() as processes:
        seen = len(processes.refresh())
    mine = list(_processes(0)) == [os.getpid()]
    print(json.dumps([same, event._path.exists(), seen, mine]), flush=True)
"""
# The three of them, in mounts of their own, which they share.
DRIVER = """
import json, os, signal, subprocess, sys
def container():
    return subprocess.Popen(
        ["unshare", *sys.argv[2:], sys.executable, "-c", sys.argv[1]],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def said(one):
    return json.loads(one.stdout.readline())
def ask(one, what=""):
    print(what, file=one.stdin, flush=True)
    return said(one)
first = container(); names = [said(first)]
second = container(); names.append(said(second))
answers = [ask(first, "collect"), ask(second, "collect"), ask(first)]
[inner] = open(f"/proc/{first.pid}/task/{first.pid}/children").read().split()
os.kill(int(inner), signal.SIGKILL)
first.wait()
answers.append(ask(second))
second.stdin.close(), second.wait()
print(json.dumps([names, answers]))
"""


@pytest.mark.nightly
@pytest.mark.parametrize("flags", [("-pf", "--mount-proc"), ("-pf",)], ids=len)
def test_two_containers_leave_each_others_files_alone(tmp_path: Path, flags) -> None:
    world = in_own_mounts("mount -t tmpfs -o mode=1777 tmpfs /dev/shm")

    done = subprocess.run(
        [*world, sys.executable, "-c", DRIVER, INSIDE, *flags],
        env=environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    names, answers = json.loads(done.stdout)
    (pid, one), (same_pid, other) = names
    assert pid == same_pid == 1
    assert one != other and Path(other).name.startswith("1-")
    # Each finds its own files as they were, and both processes.
    assert [answer[:3] for answer in answers[:3]] == 3 * [[True, True, 2]]
    # The first one has been killed.
    assert answers[3][:3] == [True, True, 1]
    if "--mount-proc" in flags:
        assert all(answer[3] for answer in answers)
