"""Process exit, fork, Ctrl-C, threads, a full queue: no hang, no crash, no loss."""

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from held_stream import Held
from open_waits import released_when_waiting, until_awaited, until_waiting

from npu_dispatch import _C

# Seconds of queued work that nobody waits for.
LONG = """
import torch
y = x = torch.full((600, 600), 0.5).npu()
for _ in range(30):
    y = torch.softmax(y @ x, 0)
torch.npu.current_stream().submit(lambda: print('done'))
"""


@pytest.mark.parametrize("ending", ["", "raise KeyError('mine')"])
def test_exit_with_work_queued_finishes_it(fresh_python, ending: str):
    result = fresh_python(LONG + ending, check=False)

    assert result.stdout == "done\n"
    assert result.returncode == bool(ending)
    # How long it waits for the rest may be told, too.
    assert ("KeyError: 'mine'" in result.stderr.splitlines()) == bool(ending)


def test_an_error_nobody_saw_is_reported_at_exit(fresh_python):
    code = """
import npu_dispatch, torch
w, i = torch.ones(4, 2).npu(), torch.tensor([9]).npu()
torch.nn.functional.embedding(i, w)
"""
    assert "index out of range" in fresh_python(code).stderr


FORKED_CALLS = {
    "factory": "torch.ones(2, device='npu')",
    "module": "m(x)",
    "backward": "m(x).sum().backward()",
    "view": "w.t().sum()",
    "stream": "torch.accelerator.current_stream().synchronize()",
    "context": "torch.npu.stream(torch.npu.Stream()).__enter__()",
    "event": "torch.npu.Event().record()",
    "copy": "x.cpu()",
    "submit": "s.submit(print)",
    "replay": "g.replay()",
}


def test_a_forked_child_gets_an_exception_from_whatever_it_calls(python):
    """The parent's tensors, modules, streams and graphs are there, and of no use."""
    code = f"""
import os, torch
m, x = torch.nn.Linear(4, 4).npu(), torch.ones(2, 4).npu()
w = m.weight
s, g = torch.npu.current_stream(), torch.npu.NPUGraph()
m(x).sum().backward()
with torch.npu.graph(g):
    y = x + 1
for _ in range(200):
    m(x)  # what is queued when the first child is made
for name, call in {FORKED_CALLS!r}.items():
    child = os.fork()
    if child == 0:
        assert not torch.npu.is_initialized()
        torch.manual_seed(3)
        try:
            exec(call)
        except RuntimeError as error:
            os._exit(0 if "spawn" in str(error) else 2)
        os._exit(1)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        print(name, status)
assert m(x).isfinite().all()
"""
    assert python(code).stdout == ""


def test_such_a_child_has_statistics_of_its_own_where_its_parent_had_some(python):
    # The sanitizer makes them before anything has started.
    result = python(
        """
import os, torch
from npu_dispatch.observe.segment import StatsReader, segment_file
def tasks():
    with StatsReader(segment_file()) as reader:
        return sum(stream.submitted for stream in reader.streams())
assert tasks() == 0
if os.fork() == 0:
    x = torch.ones(3, device="npu")
    for _ in range(100):
        x.add_(1)
    assert x[0].item() == 101
    assert tasks() > 100
    assert torch.npu.memory_usage() >= 0
    os._exit(7)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 7
print(tasks())
""",
        TORCH_NPU_SANITIZER="1",
    )

    assert result.stdout == "0\n"


CAPTURE = """
g = torch.npu.NPUGraph()
with torch.npu.graph(g):
    y = x + 1
"""
# What another stream uses, most of what the process may have.
LAST_MEMORY = """
total = torch.npu.get_device_properties(0).total_memory
torch.npu.set_per_process_memory_fraction((24 << 20) / total)
with torch.npu.stream(torch.npu.Stream()):
    big = torch.empty(15 << 20, dtype=torch.uint8, device="npu")
big.record_stream(torch.npu.current_stream())
"""
GROUP = """
import tempfile, torch.distributed as dist
store = dist.FileStore(tempfile.mkdtemp() + "/store", 1)
dist.init_process_group("hccl", store=store, rank=0, world_size=1)
dist.barrier()
"""
AWAIT = """
import asyncio
async def tick():
    while True:
        await asyncio.sleep(0.05)
async def wait():
    # A signal just before Python's loop sleeps does not end that sleep.
    ticking = asyncio.create_task(tick())
    await torch.npu.current_stream()
"""


# What one process can wait for beside its tests: api/test_waits.py.
@pytest.mark.parametrize(
    ("reason", "wait", "before"),
    [
        ("full_queue", "while True: x.add_(1)", ""),
        ("full_queue", "while True: g.replay()", CAPTURE),
        ("stream_sync", "dist.barrier()", GROUP),
        (
            "allocator",
            "del big; torch.empty(15 << 20, dtype=torch.uint8, device='npu')",
            LAST_MEMORY,
        ),
        ("", "asyncio.run(wait())", AWAIT),
    ],
)
def test_ctrl_c_ends_each_wait(reason: str, wait: str, before: str, python):
    # Nobody records what the queue waits for: nothing else ends the wait.
    program = f"""
import os, torch
from npu_dispatch import _C
x = torch.ones(4, device="npu")
x.add_(1)
torch.npu.synchronize()
{before}
torch.npu.ExternalEvent().wait()
try:
    print(_C.segment_path(), flush=True)
    {wait}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    os._exit(7)
"""
    child = python.start("-c", program, stdout=subprocess.PIPE)
    try:
        segment = child.stdout.readline().strip()
        if reason:
            until_waiting(reason, segment)
        else:
            until_awaited(segment)

        child.send_signal(signal.SIGINT)

        out, _ = child.communicate(timeout=60)
    finally:
        child.kill()
    assert (out, child.returncode) == ("interrupted\n", 7)


@pytest.mark.parametrize("command", [[], ["-m", "npu_dispatch", "run", "--quiet"]])
@pytest.mark.parametrize("before", [True, False], ids=["after Ctrl-C", "at the end"])
def test_ctrl_c_ends_an_exit_that_waits(command, before, child_environment, tmp_path):
    # Nobody records what the queue waits for.
    (tmp_path / "script.py").write_text(f"""
import atexit, torch
from npu_dispatch import _C
atexit.register(print, "the others run")
torch.ones(4, device="npu")
torch.npu.synchronize()
torch.npu.ExternalEvent().wait()
torch.npu.current_stream().submit(lambda: print("a dropped task"))
print(_C.segment_path(), flush=True)
if {before}:
    torch.npu.synchronize()
""")
    child = subprocess.Popen(
        [sys.executable, *command, "script.py"],
        cwd=tmp_path,
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        segment = child.stdout.readline().strip()
        if before:
            until_waiting("device_sync", segment)
            child.send_signal(signal.SIGINT)
        lines = iter(child.stderr.readline, "")
        assert any("before the process ends; Ctrl-C drops" in x for x in lines)

        child.send_signal(signal.SIGINT)

        # Not communicate(): what readline() has read ahead is in these files.
        out, err = child.stdout.read(), child.stderr.read()
        child.wait(timeout=60)
    finally:
        child.kill()
    assert out == "the others run\n"
    assert "queued tasks were dropped" in err
    if before:
        assert child.returncode == (130 if command else -signal.SIGINT)


def test_operators_work_until_the_last_instruction_of_a_thread(fresh_python):
    # A destructor of pthread's, as another library may have one.
    code = """
import ctypes, threading
import torch
libc, key, results = ctypes.CDLL(None), ctypes.c_uint(), []
x = [torch.ones(4, device="npu") for _ in range(60)]
@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def at_thread_end(_):
    torch.cat(x)
    results.append((torch.ones(3, device="npu") + 1).sum().item())
libc.pthread_key_create(ctypes.byref(key), at_thread_end)
libc.pthread_setspecific.argtypes = ctypes.c_uint, ctypes.c_void_p
def run():
    torch._foreach_add(x, 1)
    libc.pthread_setspecific(key.value, 1)
for _ in range(20):
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
while len(results) < 20:  # Python's join() does not wait for destructors
    pass
assert set(results) == {6.0}
"""
    fresh_python(code, MALLOC_PERTURB_="165")


def test_no_thread_local_object_of_the_library_has_a_destructor():
    # What runs after that destructor would find a destroyed object: csrc/base/
    # per_thread.h.
    command = "nm", "--dynamic", "--undefined-only", _C.__file__
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "__cxa_thread_atexit" not in done.stdout
    assert "pthread_key_create" in done.stdout


def test_a_full_queue_makes_the_caller_wait_and_loses_nothing():
    from npu_dispatch.observe.segment import StatsReader, segment_file

    x = torch.zeros(4, device="npu")
    torch.npu.synchronize()
    with StatsReader(segment_file()) as reader:
        before = reader.streams()[0]
        with Held() as held, released_when_waiting("full_queue", held.gate):
            for _ in range(12_000):
                x.add_(1)
        torch.npu.synchronize()
        after = reader.streams()[0]

    assert x.cpu().eq(12_000).all()
    assert after.full_waits > before.full_waits


CALLS = 10_000


def many(stream: torch.npu.Stream, factor: float) -> torch.Tensor:
    """Queue calls of which none has another's size; return what they add up to."""
    with torch.npu.stream(stream):
        x = torch.full((CALLS,), factor, dtype=torch.float64, device="npu")
        sums = torch.zeros((), dtype=torch.float64, device="npu")
        for size in range(1, CALLS):
            sums += torch.sum(x[:size])
    return sums


@pytest.mark.parametrize("own_threads", [False, True])
@pytest.mark.parametrize("own_streams", [False, True])
def test_each_call_has_its_own_sizes_and_numbers(own_streams, own_threads):
    made = [torch.npu.Stream() for _ in range(4)]
    streams = made if own_streams else made[:1] * 4
    factors = [1.0, 2.0, 3.0, 4.0]

    with ThreadPoolExecutor(4) as pool:
        found = list((pool.map if own_threads else map)(many, streams, factors))
    torch.npu.synchronize()

    ones = CALLS * (CALLS - 1) / 2
    # The sums are whole numbers that float64 holds.
    assert [t.item() for t in found] == [factor * ones for factor in factors]


def test_two_threads_choose_each_others_sequence_of_random_numbers():
    one, other = (torch.Generator("npu").manual_seed(n) for n in (1, 2))

    def choose(mine: torch.Generator, theirs: torch.Generator) -> None:
        for _ in range(500):
            mine.graphsafe_set_state(theirs)

    with ThreadPoolExecutor() as threads:
        both = threads.map(choose, (one, other), (other, one))
        assert list(both) == [None, None]

    assert {one.initial_seed(), other.initial_seed()} <= {1, 2}
