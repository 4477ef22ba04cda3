"""Instructions of a Python program's parts, by function, as callgrind counts them.

A program calls `MARK` between its parts. Each part's counts are its own, so what
comes before the first mark (the interpreter and torch) is counted apart.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# A function of the C library that nothing else here calls: callgrind begins new
# counts before each call of it.
MARK = "os.getpriority(os.PRIO_PROCESS, 0)"
MARKED = "getpriority"
MAIN = "-01"  # ends the names of the main thread's files

Function = tuple[str, str]  # the library's file, and the name


class Counts(Counter[Function]):
    """The instructions inside each function, without those that it calls."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[Function] = Counter()


def count(program: str, *arguments: str) -> list[Counts]:
    """Run a program; return what its main thread executed before the first mark,
    between two marks each, and after the last one."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "counts"
        subprocess.run(
            [
                *("valgrind", "--tool=callgrind", "--separate-threads=yes"),
                *(f"--dump-before={MARKED}", f"--callgrind-out-file={out}"),
                *(sys.executable, "-c", program, *arguments),
            ],
            env={**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
            check=True,
            capture_output=True,
        )
        marks = len(list(out.parent.glob(f"counts.*{MAIN}")))
        parts = [f"counts.{number + 1}{MAIN}" for number in range(marks)]
        names = own_names()
        return [read(out.parent / part, names) for part in [*parts, f"counts{MAIN}"]]


def own_names() -> dict[str, str]:
    """Return the functions of our extension by address: the installed one is
    stripped, and the one in the build folder is not."""
    built = sorted(ROOT.glob("build/py/csrc/_C.*.so"))
    if not built or not shutil.which("nm"):
        return {}
    command = ["nm", "-C", "--defined-only", str(built[0])]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = (line.split(" ", 2) for line in listed.stdout.splitlines())
    return {f"0x{address}": name for address, _, name in rows}


def read(path: Path, own: Mapping[str, str]) -> Counts:
    """Return what a file of callgrind's says; `own`: names by address."""
    counts = Counts()
    known: dict[str, dict[str, str]] = {"fn": {}, "ob": {}}

    def name(kind: str, text: str) -> str:
        # "(12) name" the first time, "(12)" afterwards.
        number, _, rest = text.partition(" ")
        return known[kind].setdefault(number, own.get(rest, rest))

    function = library = called = called_in = ""
    of_callee = False
    with path.open() as lines:
        for line in lines:
            if line[0] in "+-*0123456789":
                if not of_callee:
                    counts[library, function] += int(line.split()[1])
                of_callee = False
                continue
            key, _, value = line.rstrip("\n").partition("=")
            if key == "ob":
                library = called_in = name("ob", value)
            elif key == "fn":
                function, called_in = name("fn", value), library
            elif key == "cob":
                called_in = name("ob", value)
            elif key == "cfn":
                called = name("fn", value)
            elif key == "calls":
                counts.calls[called_in, called] += int(value.split()[0])
                called_in = library
                of_callee = True  # the next line has what the callee executed
    return counts


def per_call(few: Counts, many: Counts, calls: int) -> Counts:
    """Return what a call executes, of two parts of which one makes `calls` more."""
    found = Counts()
    for key in many:
        found[key] = (many[key] - few[key]) / calls
    for key in many.calls:
        found.calls[key] = (many.calls[key] - few.calls[key]) / calls
    return found
