"""Small programs, right and wrong, and the lines at which the wrong ones are found.

`racy_` and `correct_` begin their names. A racy program has the kind of its finding
as its docstring, and marks the lines of both sides with `# first: OP` and
`# second: OP`.
"""

from __future__ import annotations

import importlib.util
import inspect
import re
from collections.abc import Callable
from pathlib import Path

__all__ = ["load_programs", "marked", "program_name"]

Program = Callable[[], object]


def load_programs(folder: Path) -> list[Program]:
    found: list[Program] = []
    for path in sorted(folder.glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"races_{path.stem}", path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            if name.startswith(("racy_", "correct_")):
                found.append(value)
    return found


def program_name(program: Program) -> str:
    return f"{Path(inspect.getfile(program)).stem}:{program.__name__}"


def marked(program: Program, side: str) -> tuple[int, set[str]]:
    """Return the line, and what the operator may be called: a copy to the host is
    one where the host reaches the device's memory, else a task of the driver's."""
    lines, start = inspect.getsourcelines(program)
    [(number, op)] = [
        (start + i, set(found[1].split("|")))
        for i, line in enumerate(lines)
        if (found := re.search(rf"# {side}: (\S+)", line))
    ]
    return number, op
