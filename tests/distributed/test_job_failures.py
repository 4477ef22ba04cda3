"""All ranks of a job learn that one is lost or has failed, and nobody cries wolf."""

import subprocess
import sys

import pytest
from interpreter import environment

HEAD = """
import signal, threading, time
from npu_dispatch import _C
from npu_dispatch.distributed import DistributedError
def pair(*both):  # a group of two, and that it works
    group = dist.new_group(both)
    if rank in both:
        dist.all_reduce(torch.ones(3).npu(), group=group)
        torch.npu.synchronize()
    return group
def meet(name, *ranks):
    store.set(f"{name}{rank}", "1")
    store.wait([f"{name}{r}" for r in ranks])
store = dist.FileStore(sys.argv[3] + "meet", -1)
store.set_timeout(timedelta(seconds=30))
t = torch.ones(3).npu()
"""


@pytest.fixture
def job(ranks):
    return lambda code, *size, **more: ranks(HEAD + code, *size, **more)


def test_a_rank_whose_collective_fails_tells_ranks_that_have_no_part_in_it(job):
    job(
        """
join()
mine, other = pair(0, 1), pair(2, 3)
if rank == 3:
    store.wait(["told"])
    os._exit(0)
if rank == 2:  # rank 3 never comes
    other._get_backend(torch.device("npu")).set_timeout(timedelta(seconds=1))
    error = failure(lambda: dist.all_reduce(t, group=other))
    assert error.missing_ranks == [1] and "timed out after 1000 ms" in str(error), error
    assert error.lost_rank == -1, error
    assert _C.wait_for_job_failure().startswith("rank 2 failed in all_reduce #1 of")
    store.wait(["told"])
    os._exit(0)
error = failure(lambda: dist.recv(t, 1 - rank, group=mine))
assert error.lost_rank == 2 and error.rank == rank, error
assert error.group == mine.group_name, error
named = "rank 2 failed in all_reduce #1 of group '2' (<string>:"
assert named in str(error), error
assert _C.wait_for_job_failure() in str(error)
torch.npu.clear_error()
# The job cannot go on, so this does not wait.
error = failure(lambda: dist.all_reduce(t, group=mine))
assert error.lost_rank == 2, error
failure(lambda: dist.new_group([0, 1]), "no group can be made: rank 2 failed")
meet("knows", 0, 1)
store.set("told", "1")
os._exit(0)
""",
        4,
    )


def test_a_collective_that_its_stream_drops_is_a_failure_of_the_rank(job):
    job(
        """
join()
mine, other = pair(0, 1), pair(1, 2)
if rank == 1:
    weight = torch.ones(3, 2).npu()
    wrong = torch.tensor([7]).npu()
    meet("ready", 0, 1, 2)
    gate = threading.Event()  # else the next call may be told of the failure
    torch.npu.current_stream().submit(gate.wait)
    torch.nn.functional.embedding(wrong, weight)  # fails on the device
    dist.all_reduce(t, group=other)
    gate.set()
    store.wait(["told"])
    os._exit(0)
meet("ready", 0, 1, 2)
error = failure(lambda: dist.recv(t, 1, group=mine if rank == 0 else other))
assert error.lost_rank == 1, error
assert "rank 1 failed in all_reduce #1" in str(error), error
assert "its stream had failed before" in str(error), error
meet("knows", 0, 2)
store.set("told", "1")
os._exit(0)
""",
        3,
    )


def test_a_rank_that_ends_well_hurts_nobody_and_is_named_where_it_is_missed(job):
    results = job(
        """
join()
mine, other = pair(0, 1), pair(0, 2)
if rank == 2:
    sys.exit(0)
if rank == 0:
    error = failure(lambda: dist.recv(t, 2, group=other))
    assert "lost rank 2: " in str(error), error  # in that group, it is rank 1
    assert "it has left the job: its program ended" in str(error), error
    os._exit(0)
error = failure(lambda: dist.recv(t, 0, group=mine))
assert error.lost_rank == 2, error
assert "rank 0 failed in recv #0 of group" in str(error), error
""",
        3,
    )
    assert len(results) == 3


def test_ranks_that_leave_and_join_again_are_watched_again(job):
    results = job(
        """
for start in range(3):
    path = sys.argv[3] + str(start)
    dist.init_process_group(store=dist.FileStore(path, size), rank=rank,
                            world_size=size, timeout=timedelta(seconds=60))
    dist.all_reduce(t)
    torch.npu.synchronize()
    # Rank 0 leaves first, and passes on what the others say.
    if rank == 0 and start == 2:
        dist.destroy_process_group()
        assert _C.wait_for_job_failure() is None
        meet("left", 0, 1, 2)
        store.wait(["told"])
        sys.exit()
    if start < 2:
        dist.destroy_process_group()
        assert _C.wait_for_job_failure() is None
meet("left", 0, 1, 2)
if rank == 2:
    os.kill(os.getpid(), signal.SIGKILL)
error = failure(lambda: dist.recv(t, 0))
assert error.lost_rank == 2 and "its process ended" in str(error), error
store.set("told", "1")
""",
        3,
        check=False,
    )
    assert [r.returncode for r in results] == [0, 0, -9], results


def test_strangers_at_the_port_hurt_nobody(job):
    """What a port scanner does, and a rank that knows the address alone."""
    job(
        """
import socket, struct
kept = dist.FileStore(sys.argv[3] + "kept", size)
dist.init_process_group(store=kept, rank=rank, world_size=size,
                        timeout=timedelta(seconds=60))
token, _, port, address = (
    kept.get("npu_dispatch/job").decode().split())
hello = lambda text: struct.pack("=IIiI", 0x6b6e696c, 0, 1, len(text)) + text.encode()
if rank == 1:
    held = []
    for said in (b"", b"GET / HTTP/1.0\\r\\n\\r\\n", bytes(100000), hello("x" * 32),
                 hello(token), hello(token)[:20]):
        one = socket.create_connection((address, int(port)))
        one.sendall(said)
        held.append(one)
    held += [socket.create_connection((address, int(port))) for _ in range(100)]
    # Whoever speaks no words of ours, or is a rank that has come already, goes.
    for one in held[1:5]:
        one.settimeout(20)
        try:
            assert one.recv(100) == b""
        except ConnectionResetError:
            pass
for _ in range(3):
    dist.all_reduce(t)
torch.npu.synchronize()
assert _C.job_failure() == ""
meet("done", 0, 1)
if rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
assert failure(lambda: dist.recv(t, 1)).lost_rank == 1
os._exit(0)
""",
        check=False,
    )[0].check_returncode()


def test_a_child_does_not_keep_a_dead_ranks_connection(job):
    job(
        """
join()
mine, other = pair(0, 1), pair(0, 2)
fifo = sys.argv[3] + "fifo"
if rank == 2:
    os.mkfifo(fifo)
    if os.fork() == 0:
        os.close(1), os.close(2)
        with open(fifo) as file:
            file.read()  # until rank 0 is content
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
# The child holds the connection until both have heard of it: it waits for them.
error = failure(lambda: dist.recv(t, 1 - rank, group=mine))
assert error.lost_rank == 2, error
meet("heard", 0, 1)
if rank == 0:
    open(fifo, "w").close()
os._exit(0)
""",
        3,
        check=False,
    )[0].check_returncode()


@pytest.mark.nightly
def test_a_stopped_rank_is_not_lost(job):
    job(
        """
join()
dist.all_reduce(t)
torch.npu.synchronize()
if rank == 1:
    store.set("pid", str(os.getpid()))
    dist.recv(t, 0)
    torch.npu.synchronize()
else:
    pid = int(store.get("pid"))
    os.kill(pid, signal.SIGSTOP)
    time.sleep(25)  # longer than a silent host is waited for
    assert _C.job_failure() == ""
    os.kill(pid, signal.SIGCONT)
    dist.send(t, 1)
    torch.npu.synchronize()
meet("done", 0, 1)
assert _C.job_failure() == ""
"""
    )


# How a program ends, and with which code.
ENDS = {
    "pass": 0,
    "sys.exit()": 0,
    "sys.exit(0)": 0,
    "sys.exit(3)": 3,
    "sys.exit(-1)": 255,
    "sys.exit('no such file')": 1,
    "sys.exit((1, 2))": 1,
    "raise SystemExit": 0,
    "argparse.ArgumentParser().parse_args(['x'])": 2,
    "try: sys.exit(6)\nexcept SystemExit: pass": 0,
    "try: sys.exit(6)\nexcept SystemExit as e: kept = e": 0,
    "try: sys.exit(7)\nfinally: pass": 7,
    "t = threading.Thread(target=sys.exit, args=(8,)); t.start(); t.join()": 0,
}


def test_the_code_of_sys_exit_is_known_before_the_process_ends(fresh_python):
    done = fresh_python(
        f"""
import argparse, atexit, gc, os, sys, threading, torch.distributed
from npu_dispatch.distributed import _exit
from npu_dispatch.distributed._exit import give_up_when_failed
gc.freeze()  # no child searches what torch has made
children = []
for end in {list(ENDS)}:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        give_up_when_failed()
        atexit.register(lambda: os.write(write, b"%d" % _exit._code))
        exec(end)
        break
    os.close(write)
    children.append((child, read))
else:
    for child, read in children:
        status = os.waitpid(child, 0)[1]
        print(os.read(read, 9).decode(), os.waitstatus_to_exitcode(status), flush=True)
"""
    )

    known = [f"{code} {code}" for code in ENDS.values()]
    assert done.stdout.splitlines() == known, done.stderr


def test_an_error_at_a_prompt_does_not_end_the_program():
    lines = """
1 / 0
from npu_dispatch.distributed import _exit
print(repr(_exit._failure()))
"""
    done = subprocess.run(
        [sys.executable, "-i", "-q"],
        input=lines,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert "ZeroDivisionError" in done.stderr
    assert done.stdout.strip() == "''", done.stderr
