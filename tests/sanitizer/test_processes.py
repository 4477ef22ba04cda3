"""`npu-dispatch sanitize` of programs that start other processes."""

import json
import sys

import pytest

RACE = """
import torch
def race():
    s = torch.npu.Stream()
    x = torch.ones(1000, device="npu")
    with torch.npu.stream(s):
        x.mul_(2)
    torch.npu.synchronize()
"""
RACY_SCRIPT = RACE + "race()\n"


@pytest.fixture
def sanitize(python, child_environment, tmp_path):
    """Run `npu-dispatch sanitize -o FILE ARGUMENTS` in a folder with scripts.

    Returns the finished process and the findings.
    """
    (tmp_path / "racy.py").write_text(RACY_SCRIPT)
    (tmp_path / "clean.py").write_text("import torch\ntorch.ones(2).npu().sum()\n")

    def run(program, *arguments):
        out = tmp_path / "found.json"
        if program is not None:
            (tmp_path / "program.py").write_text(program)
        done = python.run(
            *("-m", "npu_dispatch", "sanitize", "-o", str(out)),
            *(arguments or ("program.py",)),
            env=child_environment(),
            cwd=tmp_path,
        )
        return done, json.loads(out.read_text())

    return run


def test_a_wrapper_is_no_hiding_place(sanitize, tmp_path):
    (tmp_path / "run.sh").write_text(f"{sys.executable} racy.py && exit 3\n")

    done, found = sanitize(None, "--", "sh", "run.sh")

    assert done.returncode == 3, done.stderr  # the command's own
    [report] = found
    assert report["kind"] == "write/write" and report["pid"] > 0
    assert report["first"]["stack"][0]["file"] == str(tmp_path / "racy.py")
    assert "npu sanitizer: 1 finding\n" in done.stderr


CHILDREN = """
import multiprocessing, os, subprocess, sys
import torch
from racy import race
def child(rank):
    os.environ["RANK"] = str(rank)
    race()
if __name__ == "__main__":
    for rank, way in enumerate(("fork", "spawn")):
        process = multiprocessing.get_context(way).Process(target=child, args=(rank,))
        process.start()
        process.join()
        assert process.exitcode == 0
    subprocess.run([sys.executable, "racy.py"], check=True)
    pid = os.fork()
    if pid == 0:
        race()
        os._exit(0)
    os.waitpid(pid, 0)
    torch.ones(2).npu().sum()  # the device is this process's from here on
    multiprocessing.get_context("fork").Process(target=print).start()
"""


@pytest.mark.nightly
def test_findings_of_all_processes_are_told_with_rank_and_number(sanitize, tmp_path):
    (tmp_path / "racy.py").write_text(RACE + "if __name__ == '__main__': race()\n")

    done, found = sanitize(CHILDREN)

    assert done.returncode == 66, done.stderr
    assert [one["kind"] for one in found] == 4 * ["write/write"], done.stderr
    assert len({one["pid"] for one in found}) == 4
    assert {one["rank"] for one in found} == {None, 0, 1}
    assert "npu sanitizer: 4 findings in 5 processes" in done.stderr
    assert "rank 1" in done.stderr and "not known" not in done.stderr


KILLED = """
import os, signal, subprocess, sys
subprocess.run([sys.executable, "-c", '''
import os, signal, torch
torch.ones(2).npu().sum()
os.kill(os.getpid(), signal.SIGKILL)
'''])
subprocess.run([sys.executable, "-c", "import os, torch; os.abort()"])
"""


def test_a_process_that_was_killed_is_not_clean(sanitize):
    done, found = sanitize(KILLED)

    assert done.returncode == 66, done.stderr
    assert found == []
    # The other one was killed before it had used the device.
    assert done.stderr.count("did not end by itself") == 1


@pytest.mark.nightly
def test_ranks_of_torchrun_are_told_apart(sanitize):
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

    done, found = sanitize(RACY_SCRIPT, *launcher, "program.py")

    assert done.returncode == 66, done.stderr
    assert sorted(one["rank"] for one in found) == [0, 1]


def test_without_a_finding_the_status_is_the_programs(sanitize):
    done, found = sanitize(None, "clean.py")
    assert (done.returncode, found) == (0, []), done.stderr
    assert "npu sanitizer: 0 findings\n" in done.stderr

    done, found = sanitize("import os; os._exit(4)")
    assert (done.returncode, found) == (4, []), done.stderr
    assert "no process used the device npu" in done.stderr

    done, _ = sanitize(None, "--", "no-such-command")
    assert done.returncode == 1
    assert "No such file or directory: 'no-such-command'" in done.stderr
