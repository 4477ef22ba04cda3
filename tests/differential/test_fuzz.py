"""The fuzzer finds each bug that is planted for it, and nothing in fixed sequences.

`make fuzz` and `make nightly` look for others in new ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import Any

import pytest

from tests.differential import corpus, planted
from tests.differential.compare import Difference
from tests.differential.fuzz import keep
from tests.search.report import ROOT, Report

# Of sequences in which every bug that is planted is found.
FIXED = ("--seed", "1", "--rounds", "4")

# As long as a slow machine takes: what is run is bounded by its number.
PATIENCE = 900
pytestmark = pytest.mark.timeout(PATIENCE + 60)


def fuzz(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.differential.fuzz", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


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
        assert all(corpus.read(path))


def test_a_finding_is_kept_as_the_programs_that_it_is(tmp_path, capsys):
    (tmp_path / "corpus" / "mended").mkdir(parents=True)
    programs = [["t0 = data((3,), float32, 1)"], ["t1 = t0 + 1", "t1.neg_()"]]
    difference = Difference(1, "t1.neg_()", "values of t1", "1\n2", "x" * 200)

    keep(Report("fuzz", folder=tmp_path / "findings"), 7, programs, difference)
    [path] = (tmp_path / "findings").iterdir()
    kept = corpus.keep(path, tmp_path / "corpus")

    told = capsys.readouterr().out
    assert f"python -m tests.differential.corpus keep {path}" in told
    assert path.name.startswith("values_neg_")
    assert not path.exists()
    assert corpus.read(kept) == programs
    assert max(map(len, kept.read_text().splitlines())) <= 88


def test_what_is_kept_replaces_nothing(tmp_path):
    (tmp_path / "mended").mkdir()
    (tmp_path / "mended" / "same.py").write_text("t0 = 1")
    (tmp_path / "same.py").write_text("t0 = 2")

    with pytest.raises(FileExistsError):
        corpus.keep(tmp_path / "same.py", tmp_path)

    assert (tmp_path / "same.py").exists()


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
