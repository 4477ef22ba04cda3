"""Programs that found something, as files that can be read and run."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.differential import child
from tests.differential.check import check
from tests.differential.compare import Difference

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


def difference(path: Path) -> Difference | child.Died | None:
    """Run a file's programs on both devices, in a process of their own."""
    return child.call(check, read(path))


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


if __name__ == "__main__":
    import json

    from tests.differential.warm import warm

    warm()
    print(json.dumps(all_differences()))
