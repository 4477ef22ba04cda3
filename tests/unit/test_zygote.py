"""A program in a child of the zygote cannot tell, and neither can its caller."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from interpreter import environment

PIPE = subprocess.PIPE


@pytest.fixture(params=["python", "fresh_python"])
def either(request: pytest.FixtureRequest):
    """Facts that hold for both: the zygote's children are like interpreters."""
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("import sys; sys.exit('no')", 1),
        ("1 / 0", 1),
        ("1 +", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os; os._exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import os; os.abort()", -signal.SIGABRT),
    ],
)
def test_the_status_is_the_programs(either, code: str, status: int):
    assert either(code, check=False).returncode == status


def test_an_uncaught_exception_is_printed_word_for_word(python, fresh_python):
    for code in (
        "def f():\n  1 / 0\nf()",
        "1 +",
        "try: 1 / 0\nexcept ZeroDivisionError: raise KeyError('x')",
        "raise KeyboardInterrupt",
        "import sys; sys.excepthook = lambda *a: print('mine', a[0])\n1 / 0",
        "import atexit; atexit.register(lambda: 1 / 0)",
        "import torch, threading as t\nt.Thread(target=lambda: 1 / 0).start()",
    ):
        here, there = (p(code, check=False, timeout=60) for p in (python, fresh_python))
        texts = [re.sub("0x[0-9a-f]+", "", p.stdout + p.stderr) for p in (here, there)]
        assert texts[0] == texts[1]


IDENTITY = """
import os, signal, sys, threading, torch
print(__name__, sys.argv, sys.path[0] or "''", __spec__, sorted(vars()))
print(os.getcwd(), os.environ["GIVEN"], os.environ.get("HOME"), sys.orig_argv[1:2])
print(signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
print(threading.current_thread() is threading.main_thread(), threading.active_count())
print(os.listdir("/proc/self/fd").__len__(), os.getpgrp(), sys.flags)
print(sys.stdout.isatty(), sys.stdout.line_buffering, sys.stdout.encoding)
print(torch.get_num_threads(), torch.npu.is_initialized())
print(sys.stdin.read())
"""


def test_the_program_sees_what_it_would_see(python, fresh_python):
    seen = []
    for one in (python, fresh_python):
        process = one.start(
            "-c",
            IDENTITY,
            "a",
            "b c",
            env=environment(GIVEN="é"),
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = process.communicate("written\n", timeout=60)
        assert process.returncode == 0, err
        seen.append(re.sub("0x[0-9a-f]+", "", out).splitlines())

    assert seen[0] == seen[1]


def test_a_file_and_a_module_run_as_main(python, fresh_python, tmp_path: Path):
    (tmp_path / "beside.py").write_text("fact = 7")
    program = "import sys, beside; print(__name__, __file__, sys.argv, sys.path[0])"
    (tmp_path / "program.py").write_text(program)

    for argv in (["-m", "program", "x"], [str(tmp_path / "program.py"), "x"]):
        here, there = (p.run(*argv, timeout=60) for p in (python, fresh_python))
        assert here.returncode == 0, here.stderr
        assert (here.stdout, here.stderr) == (there.stdout, there.stderr)


def test_the_interpreter_is_finalised(either):
    code = """
import atexit, sys, threading, time
atexit.register(print, "at exit")
gate = threading.Event()
threading.Thread(target=lambda: (gate.wait(), print("thread"))).start()
class Last:
    def __del__(self): print("collected", sys.is_finalizing())
last = Last()
print("end", end=" ")
gate.set()
"""
    assert either(code).stdout == "end thread\nat exit\ncollected True\n"


def test_ctrl_c_and_terminate_reach_it(either):
    # Busy: a signal between two lines does not end a read that begins after it.
    code = """
try:
    print("on", flush=True)
    while True: pass
except KeyboardInterrupt:
    exit(5)
"""
    for number, status in ((signal.SIGINT, 5), (signal.SIGTERM, -signal.SIGTERM)):
        process = either.start("-c", code, stdout=PIPE)
        with process:
            assert process.stdout.readline() == "on\n"
            assert process.poll() is None
            process.send_signal(number)
            assert process.wait(60) == status


def test_ctrl_c_reaches_what_a_test_starts_in_a_shells_background():
    # Such a job ignores the signal, and what it starts inherits that.
    code = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.exit(pytest.main(sys.argv[1:]))
"""
    reach = test_ctrl_c_and_terminate_reach_it.__name__
    chosen = f"{__file__}::{reach}[fresh_python]"
    done = subprocess.run(
        [sys.executable, "-c", code, "-q", "-p", "no:cacheprovider", chosen],
        capture_output=True,
        text=True,
        timeout=170,
    )

    assert done.returncode == 0, done.stdout


def test_a_program_that_takes_too_long_is_ended(either):
    code = "import os; print(os.getpid(), flush=True); input()"
    process = either.start("-c", code, stdin=PIPE, stdout=PIPE)
    with process:
        assert int(process.stdout.readline()) == process.pid
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.kill()
        assert process.wait(60) == -signal.SIGKILL


def test_nothing_passes_from_child_to_child(python):
    first = """
import os, random, sys, numpy, torch
os.environ["LEFT"] = "1"; os.chdir("/"); sys.modules["left"] = sys
torch.left = 1; torch.npu.init(); sys.path.append("left")
print(random.random(), numpy.random.rand(), torch.rand(()).item())
"""
    second = """
import os, random, sys, numpy, torch
assert "LEFT" not in os.environ and os.getcwd() != "/" and "left" not in sys.modules
assert not hasattr(torch, "left") and not torch.npu.is_initialized()
assert "left" not in sys.path
print(random.random(), numpy.random.rand(), torch.rand(()).item())
"""
    drawn = [python(code).stdout.split() for code in (first, second, second)]

    # Each begins with the same seed, wherever those before it have stopped.
    assert drawn[0] == drawn[1] == drawn[2]
    assert len(set(drawn[0])) == 3


def test_what_this_process_does_is_not_the_childs(python, monkeypatch):
    python("pass")
    monkeypatch.setenv("SET_LATER", "1")
    monkeypatch.setitem(sys.modules, "here", sys)
    env = {k: v for k, v in environment().items() if k != "SET_LATER"}
    code = "import os, sys; assert 'here' not in sys.modules; print(os.environ)"

    assert "SET_LATER" in python(code).stdout
    assert "SET_LATER" not in python.run("-c", code, env=env).stdout


def test_variables_that_were_read_at_the_start_are_refused(python):
    with pytest.raises(AssertionError, match=r"OMP_NUM_THREADS.*fresh_python"):
        python("pass", OMP_NUM_THREADS="7")
