"""What is tried of which library: each of `programs` that names its library is a row.

Such a program has run(device) and returns the losses, or other figures, that have to
be cpu's; one that `npu-dispatch run` runs unchanged also returns a tensor that it made.
The first line of its docstring says what it tries, and constants of it the rest of its
row. RANKS has rows in which two ranks run it, with options of theirs.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Row:
    program: str
    what: str
    module: str
    library: str  # as pip knows it; its version is that of the run
    needs: tuple[str, ...] = ()  # besides the library
    # Installed without what they require, and seen by this row alone.
    apart: tuple[str, ...] = ()
    alias: bool = False  # it is run with torch_npu's name, which some libraries seek
    unchanged: str = ""  # the option of `npu-dispatch run`, where that runs it
    relative: float = 1e-4  # how far losses may be apart
    ranks: dict[str, Any] | None = None  # what two_ranks is told, where it runs it


def _rows(path: Path) -> Iterator[Row]:
    module = ast.parse(path.read_text())
    said = {
        node.targets[0].id.lower(): ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.lower() in Row.__dataclass_fields__
    }
    of_ranks = said.pop("ranks", {})
    if "library" not in said:  # what programs share
        return
    if what := ast.get_docstring(module):
        line = what.splitlines()[0].removesuffix(".")
        yield Row(path.stem, line, path.stem, **said)
    for name, told in of_ranks.items():
        options = {key: value for key, value in told.items() if key != "what"}
        yield Row(name, told["what"], path.stem, **said, ranks=options)


MATRIX = tuple(row for path in sorted(PROGRAMS.glob("*.py")) for row in _rows(path))
