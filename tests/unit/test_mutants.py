"""Mutants of one file are one program, and each behind its number is itself."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from missing import need_tool

from tests.mutants import mutate, run

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
#include <stdio.h>
#include <stdlib.h>

namespace {
int between(int low, int x, int high) {
  if (x < low) return 0;
  int above = 0;
  while (low + above < x && x <= high) ++above;  // counts up
  above += low ? 10 : 20;
  return above;
}
}  // namespace

int main() {
  printf("%d %d %d", between(2, 1, 9), between(2, 5, 9), between(2, 2, 1));
}
"""


def test_a_program_with_all_mutants_is_itself_until_one_is_chosen(tmp_path) -> None:
    compiler = need_tool("c++", "g++", "clang++", remedy="install a C++ compiler")
    (tmp_path / "f.cpp").write_text(PROGRAM)
    planted = mutate.without_overlaps(mutate.mutants(tmp_path, "f.cpp"))
    numbered = dict(enumerate(planted, 1))
    (tmp_path / "planted.cpp").write_text(mutate.plant(PROGRAM, numbered))
    subprocess.run(
        [compiler, "-std=c++20", f"-I{ROOT}", "planted.cpp", "-o", "planted"],
        cwd=tmp_path, check=True,
    )  # fmt: skip

    def said(number: int) -> str:
        env = {**os.environ, "NPU_MUTANT": str(number)}
        # By processor time: on a busy machine one may not run for a second.
        limited = ["sh", "-c", "ulimit -t 1; exec ./planted"]
        done = subprocess.run(limited, cwd=tmp_path, env=env, capture_output=True)
        ended = done.returncode in (-signal.SIGXCPU, -signal.SIGKILL)
        return "hangs" if ended else done.stdout.decode()

    assert said(0) == "0 13 10"
    of = {f"{m.before} -> {m.after}": said(n) for n, m in numbered.items()}
    assert of["if (x < low) return 0; -> if (x <= low) return 0;"] == "0 13 0"
    assert of["if (x < low) return 0; -> if ((x < low) && false) return 0;"] == (
        "10 13 10"
    )
    added = "above += low ? 10 : 20;"
    assert of[f"{added} -> {added.replace('+=', '-=')}"] == "0 -7 -10"
    assert of[f"{added} -> ;"] == "0 3 0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a.load(std::memory_order_acquire);", "a.load(std::memory_order_relaxed);"),
        ("a.store(1, std::memory_order_seq_cst);", "std::memory_order_release"),
        ("a.exchange(1, std::memory_order_seq_cst);", "std::memory_order_acq_rel"),
    ],
)
def test_an_order_becomes_the_next_weaker_one(tmp_path, before, after) -> None:
    (tmp_path / "f.cpp").write_text(f"void f() {{\n  {before}\n}}\n")
    (order,) = (m for m in mutate.mutants(tmp_path, "f.cpp") if m.is_order)
    assert after in order.after


def test_whatever_is_excused_is_a_mutant_of_a_line_that_is_there() -> None:
    entries = run.equivalent()
    folders = {path.split("/")[1] for path, _, _ in entries}
    mutants = [m for folder in folders for m in mutate.in_folder(ROOT, folder)]

    idle = [e for e in entries if not any(run.excused(m, [e]) for m in mutants)]

    assert not idle
