"""The code and the commands that a page of docs/ shows, and what it says of them.

A comment right above a block says what is done with it:

    <!-- file: slow.py -->        it is this file in the folder of the commands
    <!-- not run: REASON -->      no test runs it
    <!-- nightly: REASON -->      only a night does
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Block", "Command", "blocks", "commands"]

_BLOCK = re.compile(
    r"^(?:<!-- (?P<marks>[^\n]*?) -->\n\n?)?"
    r"(?:```(?P<language>\w*)\n(?P<fenced>.*?)^```$"
    r"|(?P<indented>(?:^ {4}\S[^\n]*\n)+))",
    re.M | re.S,
)
_PROGRAMS = (
    "npu-dispatch|python|pytest|torchrun|make|cc|curl|docker|kubectl|pip|py-spy"
    "|promtool|prometheus|taskset|git"
)
_COMMAND = re.compile(rf"(?:\$ )?((?:[A-Z_]+=\S* )*(?:{_PROGRAMS})\b.*)")
# What follows a command in its line: a comment, or a column of words.
_ASIDE = re.compile(r"\s+#\s+(.*)|\s{2,}(.*)")


@dataclass(frozen=True, slots=True)
class Block:
    language: str  # of the fence; "indented" where there is none
    text: str
    marks: dict[str, str]  # of the comment above: "file", "not run", "nightly"


@dataclass(frozen=True, slots=True)
class Command:
    text: str
    aside: str  # what the line says of it
    block: Block


def blocks(page: Path) -> Iterator[Block]:
    """Yield each block of code, in order."""
    for match in _BLOCK.finditer(page.read_text()):
        marks = dict(
            mark.split(": ", 1)
            for mark in (match["marks"] or "").split("; ")
            if ": " in mark
        )
        if match["indented"] is not None:
            text = re.sub(r"^ {4}", "", match["indented"], flags=re.M)
            yield Block("indented", text, marks)
        else:
            yield Block(match["language"], match["fenced"], marks)


def commands(page: Path) -> Iterator[Command]:
    """Yield each command that a reader may type.

    Blocks with prompts also have output, so only lines with a prompt count there.
    """
    for block in blocks(page):
        if block.language not in ("indented", "", "bash", "sh", "console"):
            continue
        text = block.text.replace("\\\n", " ")
        prompts = re.search(r"^\$ ", text, re.M) is not None
        for line in text.splitlines():
            found = _COMMAND.fullmatch(line)
            if found is None or (prompts and not line.startswith("$ ")):
                continue
            aside = _ASIDE.search(found[1])
            command = found[1][: aside.start()] if aside else found[1]
            said = (aside[1] or aside[2] or "") if aside else ""
            yield Command(command, said, block)
