"""The fuzzer finds each planted bug, and nothing in fixed sequences and the corpus.

`make fuzz` and `make nightly` look for others in new sequences.
"""

import json
import re
import subprocess
from typing import Any

import pytest

from npu_dispatch.versions import TORCH_VERSION
from tests.differential import corpus, planted
from tests.differential.compare import Difference
from tests.differential.fuzz import keep
from tests.differential.known import KNOWN
from tests.search.children import run_module
from tests.search.report import Report

# Of sequences in which every bug that is planted is found.
FIXED = ("--seed", "1", "--rounds", "4")

pytestmark = pytest.mark.timeout(960)


def fuzz(*options: str) -> subprocess.CompletedProcess[str]:
    return run_module("tests.differential.fuzz", *options)


@pytest.mark.nightly
@pytest.mark.parametrize("bug", sorted(planted.BUGS))
def test_planted_bug_is_found_and_written_for_the_corpus(bug, tmp_path):
    done = fuzz(
        *("--plant", bug, *FIXED),
        *("--findings", str(tmp_path), "--report", str(tmp_path / "fuzz.json")),
    )

    assert done.returncode == 1, done.stdout + done.stderr[-2000:]
    written = [path for path in tmp_path.iterdir() if path.suffix == ".py"]
    assert written or "(not again in a process of its own)" in done.stdout
    for path in written:
        assert f"tests.differential.corpus keep {path}\n" in done.stdout
        assert all(corpus.read(path.read_text()))


def test_mended_stays_mended_and_known_is_still_there():
    """Where a known one no longer differs, its program goes to corpus/mended.py."""
    known = {entry.name for entry in KNOWN}
    assert known == corpus.kept("known").keys()
    # In a process that has not used the device.
    done = run_module("tests.differential.corpus")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)

    wanted = {f"mended/{name}": "" for name in corpus.kept("mended")}
    for entry in KNOWN:
        is_there = TORCH_VERSION.startswith(entry.torch)
        wanted[f"known/{entry.name}"] = entry.name if is_there else ""
    assert shown == wanted


@pytest.fixture
def folder(tmp_path):
    """A corpus that has one program."""
    (tmp_path / "mended.py").write_text("# program: one\nt0 = 1\n")
    return tmp_path


def test_a_finding_is_kept_as_the_programs_that_it_is(folder, capsys):
    programs = [["t0 = data((3,), float32, 1)"], ["t1 = t0 + 1", "t1.neg_()"]]
    difference = Difference(1, "t1.neg_()", "values of t1", "1\n2", "x" * 200)

    keep(Report("fuzz", folder=folder / "findings"), 7, programs, difference)
    [path] = (folder / "findings").iterdir()
    kept = corpus.keep(path, folder)

    told = capsys.readouterr().out
    assert f"python -m tests.differential.corpus keep {path}" in told
    assert path.name.startswith("values_neg_")
    assert not path.exists()
    assert corpus.kept("mended", folder) == {"one": [["t0 = 1"]], path.stem: programs}
    assert max(map(len, kept.read_text().splitlines())) <= 88


def test_what_is_kept_replaces_nothing(folder):
    (folder / "one.py").write_text("t0 = 2")

    with pytest.raises(FileExistsError):
        corpus.keep(folder / "one.py", folder)

    assert (folder / "one.py").exists()
    assert corpus.kept("mended", folder) == {"one": [["t0 = 1"]]}


def ended(done: subprocess.CompletedProcess[str], capfd: Any) -> str:
    """Show what was run, and return its last line; it must have found nothing."""
    seeds = re.findall(r"^--seed (\d+)", done.stdout, re.M)
    summary = done.stdout.splitlines()[-1]
    with capfd.disabled():
        print(f"\nseeds {' '.join(seeds)}: {summary}")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return summary


def test_the_same_sequences_do_on_the_device_what_they_do_on_cpu(capfd, tmp_path):
    report = str(tmp_path / "fuzz.json")
    done = fuzz(*FIXED, "--keep-going", "--report", report)

    assert ended(done, capfd).startswith("sequences: 1,600, ")


@pytest.mark.nightly
def test_new_sequences_do_on_the_device_what_they_do_on_cpu(capfd):
    """Their seeds are printed; --seed repeats a round."""
    done = fuzz("--seconds", "120", "--keep-going")

    assert not ended(done, capfd).startswith("sequences: 0,")
