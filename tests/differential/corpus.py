"""Programs that found something, as text that can be read and run.

    python -m tests.differential.corpus                 what each shows, as JSON
    python -m tests.differential.corpus keep FILE...    moves findings to mended.py

corpus/mended.py has those whose bug is fixed, corpus/known.py those whose difference
is meant. A kept program is run by test_fuzz.py, which is red until its bug is fixed.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.differential.check import check_all, warm
from tests.differential.compare import Difference
from tests.search.children import call

FOLDER = Path(__file__).with_name("corpus")
NAME = re.compile(r"^# program: (\w+)\n", re.MULTILINE)
# Ends a program; the next one's variables are its own.
THEN = "# then, another program:"
Programs = list[list[str]]


def read(source: str) -> Programs:
    """Return the programs of a text, statement by statement."""
    programs = []
    for part in source.split(THEN):
        steps = [ast.get_source_segment(part, node) for node in ast.parse(part).body]
        programs.append([step for step in steps if step is not None])
    return programs


def text(programs: Sequence[list[str]]) -> str:
    """Return what read() reads as these programs."""
    return f"{THEN}\n".join("\n".join([*steps, ""]) for steps in programs)


def kept(kind: str, folder: Path = FOLDER) -> dict[str, Programs]:
    """Return the programs of known.py or mended.py by their names."""
    _, *parts = NAME.split((folder / f"{kind}.py").read_text())
    return dict(zip(parts[::2], map(read, parts[1::2]), strict=True))


def keep(path: Path, folder: Path = FOLDER) -> Path:
    """Move a program to those that must not differ, laid out as code is here."""
    mended = folder / "mended.py"
    if path.stem in kept("mended", folder):
        raise FileExistsError(f"{mended} has a program {path.stem} already")
    with mended.open("a") as file:
        file.write(f"\n# program: {path.stem}\n{path.read_text()}")
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", mended], check=True)
    path.unlink()
    return mended


def all_differences() -> dict[str, str]:
    """Return kind/name of each and what it shows: a known's name, or text."""
    from tests.differential import known

    shown = {}
    for kind in ("known", "mended"):
        for name, programs in kept(kind).items():
            found = call(check_all, programs)
            why = known.explains(found) if isinstance(found, Difference) else None
            shown[f"{kind}/{name}"] = why or ("" if found is None else str(found))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="move findings to corpus/mended.py")
    keeping.add_argument("files", nargs="+", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "keep":
        for path in chosen.files:
            print(f"{path.stem} is in {keep(path)}")
        return
    warm()
    print(json.dumps(all_differences()))


if __name__ == "__main__":
    main()
