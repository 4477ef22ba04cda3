"""Writes tests/api/rows.txt, one line for each row of the requirement documents.

    python tests/api/make_rows.py FOLDER_OF_THE_DOCUMENTS

The documents are no part of this repository: that git sees no difference afterwards
is the check, where they are. test_rows.py counts the lines.
A line: the document, the name that the row has there, and its path in torch.npu.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROWS = Path(__file__).parent / "rows.txt"

_RENAMED = {
    "CUDAGraph": "NPUGraph",
    "CUDAPluggableAllocator": "NPUPluggableAllocator",
    "_sanitizer.enable_cuda_sanitizer": "_sanitizer.enable_npu_sanitizer",
}
_HEADING = re.compile(r"```py\n(?:class )?([\w.]+)(?:\(.*\))?[¶]?\n")


def rows_of(number: str, text: str) -> Iterator[str]:
    """Yield the names in a document, as they are spelled there."""
    if number == "000":  # | torch.cuda.x | torch_npu.npu.x | ...
        yield from re.findall(r"^\|(torch\.cuda\.\S+?)\|", text, re.M)
    elif number == "001":  # | [`x`](...) | ...
        yield from re.findall(r"^\| \[`([^`]+)`\]", text, re.M)
    elif number == "002":  # tables in HTML
        for row in re.findall(r"<tr.*?</tr>", text, re.S):
            if "<td" in row:
                plain = re.sub(r"<[^>]*>", " ", row)
                yield re.search(r"\btorch[\w.()]*", plain, re.ASCII)[0]
    elif number == "003":  # code blocks; methods come after their class
        owner = ""
        for name in _HEADING.findall(text):
            if name in ("torch.cuda.Stream", "torch.cuda.Event"):
                owner = name
            yield name if "." in name else f"{owner}.{name}"
    else:  # lines "x what it does", after a line of titles; two in one line
        listed = False
        for line in text.splitlines():
            if line.startswith("类或方法"):
                listed = True
            elif listed and (match := re.match(r"([A-Za-z_][\w.]*) \S", line)):
                yield match[1]
            else:
                listed = False
                yield from re.findall(r"\|(jiterator\.\w+)\|", line)


def path_of(name: str) -> str:
    """Return the path in torch.npu of a name in a document."""
    name = name.replace("()", "")
    name = re.sub(r"^torch(_npu)?\.(npu|cuda)\.(npu\.)?", "", name)
    for theirs, ours in _RENAMED.items():
        name = re.sub(rf"^{theirs}\b", ours, name)
    return name


def lines_of(folder: Path) -> list[str]:
    """Return the lines of rows.txt."""
    return [
        f"{file.name[:3]} {name} {path_of(name)}"
        for file in sorted(folder.glob("00*.txt"))
        for name in rows_of(file.name[:3], file.read_text())
    ]


if __name__ == "__main__":
    ROWS.write_text("\n".join(lines_of(Path(sys.argv[1]))) + "\n")
