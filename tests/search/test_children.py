"""A case that dies, hangs or raises is told of, and the others go on."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import atexit, contextlib, json, os, select, signal, subprocess, sys, threading
sys.path.insert(0, sys.argv[1])
from tests.search.children import call, run, work_through

def behave(name, report):
    report(f"the case {name}")
    if name == "dies":
        os.kill(os.getpid(), signal.SIGSEGV)
    if name == "raises":
        raise ValueError("no such thing")
    if name == "hangs":
        threading.Event().wait()
    return os.getpid()

def leaves():
    atexit.register(open("left", "w").write, "yes")
    return "done"

names = ["a", "dies", "b", "raises", "c", "hangs", "d"]
told = {name: str(found) for name, found in work_through(names, behave, 2, 3)}
told["two each"] = [by for _, by in work_through("stuv", behave, 1, 60, lifetime=2)]
for name, function, seconds in (
    ("exits", lambda: os._exit(3), 60),
    ("is killed", lambda: os.kill(os.getpid(), signal.SIGKILL), 60),
    ("says nothing", lambda: os._exit(0), 60),
    ("never ends", lambda: threading.Event().wait(), 1),
):
    told[name] = call(function, seconds=seconds).why
told["leaves"] = call(leaves, leaves=True)
done = run(["sh", "-c", "sleep 1000 & echo $!; echo why >&2; exit 7"], 60)
told["command"] = done.returncode, done.stderr
with contextlib.suppress(ProcessLookupError):  # it is gone
    left = os.pidfd_open(int(done.stdout))
    assert select.select([left], [], [], 60)[0], "what a command leaves is ended"
try:
    run(["sleep", "1000"], 0.1)
except subprocess.TimeoutExpired as error:
    told["command that never ends"] = error.timeout
print(json.dumps(told))
"""


@pytest.fixture
def told(python, tmp_path: Path):
    return json.loads(python(PROGRAM, str(ROOT)).stdout)


def test_each_case_has_an_answer_and_the_bad_ones_say_why(told, tmp_path):
    for name in "abcd":
        assert told[name].isdigit()
    assert told["dies"].startswith("ended with SIGSEGV; at the case dies\n")
    assert told["hangs"].startswith("no end within 3 s; at the case hangs\n")
    assert "in behave" in told["hangs"], "where its threads are"
    assert told["raises"].endswith("ValueError: no such thing")
    by = told["two each"]
    assert by[0] == by[1] != by[2] == by[3], "a child is replaced after so many cases"
    assert told["exits"] == "ended with status 3"
    assert told["is killed"] == "ended with SIGKILL"
    assert told["says nothing"] == "said nothing"
    assert told["never ends"] == "no end within 1 s"
    assert told["command"] == [7, "why\n"]
    assert told["command that never ends"] == 0.1
    assert told["leaves"] == "done"
    assert (tmp_path / "left").read_text() == "yes", "it ended as a program does"
