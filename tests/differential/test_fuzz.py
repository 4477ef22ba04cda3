"""The fuzzer finds each bug that is planted for it, and nothing in fixed sequences.

`make fuzz` and `make nightly` look for others in new ones.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.differential import corpus
from tests.differential.compare import Difference
from tests.differential.fuzz import Finding

ROOT = Path(__file__).resolve().parents[2]
PLANTED = [
    name
    for file in ("planted.py", "planted_more.py")
    for name in re.findall(
        r"^@bug\ndef (\w+)", Path(__file__).with_name(file).read_text(), re.M
    )
]


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
@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found_and_written_for_the_corpus(bug, tmp_path):
    done = fuzz(
        *("--plant", bug, "--seed", "1", "--seconds", "60"),
        *("--findings", str(tmp_path)),
    )

    assert done.returncode == 1, done.stdout + done.stderr[-2000:]
    assert ": 0 findings" not in done.stdout
    written = list(tmp_path.iterdir())
    assert written or "(not again in a process of its own)" in done.stdout
    for path in written:
        assert f"tests.differential.corpus keep {path}\n" in done.stdout
        assert all(corpus.read(path))


def test_a_finding_is_kept_as_the_programs_that_it_is(tmp_path):
    (tmp_path / "corpus" / "mended").mkdir(parents=True)
    programs = [["t0 = data((3,), float32, 1)"], ["t1 = t0 + 1", "t1.neg_()"]]
    difference = Difference(1, "t1.neg_()", "values of t1", "1\n2", "x" * 200)
    finding = Finding(7, programs, difference)

    told = finding.tell(tmp_path / "findings")
    [path] = (tmp_path / "findings").iterdir()
    kept = corpus.keep(path, tmp_path / "corpus")

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
    [summary] = [line for line in done.stdout.splitlines() if " sequences, " in line]
    with capfd.disabled():
        print(f"\nseeds {' '.join(seeds)}: {summary}")
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    return summary


def test_the_same_4000_sequences_do_on_the_device_what_they_do_on_cpu(capfd):
    done = fuzz("--seed", "1", "--rounds", "10", "--keep-going")

    assert ended(done, capfd).startswith("4000 sequences, ")


@pytest.mark.nightly
def test_new_sequences_do_on_the_device_what_they_do_on_cpu(capfd):
    """Their seeds are printed; --seed repeats a round."""
    done = fuzz("--seconds", "120", "--keep-going")

    assert not ended(done, capfd).startswith("0 ")
