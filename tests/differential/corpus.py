"""Programs that found something, as files that can be read and run.

    python -m tests.differential.corpus                 what each shows, as JSON
    python -m tests.differential.corpus keep FILE...    moves a finding to mended/

Kept, a program is run by test_corpus.py, which is red until its bug is mended.
"""

from __future__ import annotations

import argparse
import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.differential.check import check_all
from tests.differential.compare import Difference
from tests.search.children import Died, call

FOLDER = Path(__file__).with_name("corpus")
# Ends a program; the next one's variables are its own.
THEN = "# then, another program:"


def read(path: Path) -> list[list[str]]:
    """Return the programs of a file, statement by statement."""
    programs = []
    for text in path.read_text().split(THEN):
        parts = [ast.get_source_segment(text, node) for node in ast.parse(text).body]
        programs.append([part for part in parts if part is not None])
    return programs


def text(programs: Sequence[list[str]]) -> str:
    """Return what read() reads as these programs."""
    return f"{THEN}\n".join("\n".join([*steps, ""]) for steps in programs)


def keep(path: Path, folder: Path = FOLDER) -> Path:
    """Move a program to those that must not differ, laid out as code is here."""
    kept = folder / "mended" / path.name
    if kept.exists():
        raise FileExistsError(f"{kept} is there already")
    shutil.move(path, kept)
    subprocess.run([sys.executable, "-m", "ruff", "format", "-q", kept], check=True)
    return kept


def difference(path: Path) -> Difference | Died | None:
    """Run a file's programs on both devices, in a process of their own."""
    return call(check_all, read(path))


def files(kind: str) -> list[Path]:
    return sorted((FOLDER / kind).glob("*.py"))


def all_differences() -> dict[str, str]:
    """Return kind/name of each file and what it shows: a known's name, or text."""
    from tests.differential import known

    shown = {}
    for kind in ("known", "mended"):
        for path in files(kind):
            found = difference(path)
            why = known.explains(found) if isinstance(found, Difference) else None
            shown[f"{kind}/{path.stem}"] = why or ("" if found is None else str(found))
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command")
    keeping = commands.add_parser("keep", help="move findings to corpus/mended")
    keeping.add_argument("files", nargs="+", type=Path)
    chosen = parser.parse_args()
    if chosen.command == "keep":
        for path in chosen.files:
            print(keep(path))
        return
    from tests.differential.warm import warm

    warm()
    print(json.dumps(all_differences()))


if __name__ == "__main__":
    main()
