"""What is tried of which library: each of `programs` that names its library is a row.

Such a program has run(device) and returns the losses, or other figures, that have to
be cpu's. The first line of its docstring says what it tries, and constants of it the
rest of its row.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = Path(__file__).with_name("programs")


@dataclass(frozen=True)
class Row:
    program: str
    what: str
    library: str  # as pip knows it; its version is that of the run
    needs: tuple[str, ...] = ()  # besides the library
    # Installed without what they require, and seen by this row alone.
    apart: tuple[str, ...] = ()
    alias: bool = False  # it is run with torch_npu's name, which some libraries seek
    relative: float = 1e-4  # how far losses may be apart


def _row(path: Path) -> Row | None:
    module = ast.parse(path.read_text())
    said = {
        node.targets[0].id.lower(): ast.literal_eval(node.value)
        for node in module.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id.lower() in Row.__dataclass_fields__
    }
    if "library" not in said:  # what programs share
        return None
    what = (ast.get_docstring(module) or "").splitlines()[0].removesuffix(".")
    return Row(path.stem, what, **said)


MATRIX = tuple(filter(None, map(_row, sorted(PROGRAMS.glob("*.py")))))
