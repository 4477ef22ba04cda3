"""Which small mistakes could be made in a C++ file: classical mutation operators.

They look at the text, which clang-format has put into one shape: an operator
of two operands has spaces around it, a template's brackets have none.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

# What a comment, string, character or directive is; blanked before looking.
_NOT_CODE = re.compile(
    r"""//[^\n]* | /\*.*?\*/ | "(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])'
      | ^\#(?:\\\n|[^\n])*""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
# Lines that say something to people, hold at compile time, or only hint at
# what is fast: other words, limits or hints are no mistakes a test must see.
_LEFT_OUT = re.compile(
    r"\b(f?printf|snprintf|perror|static_assert|constexpr|template|using|typedef"
    r"|operator|alignas|namespace|prefetch\w*|pause|memory_order_\w+\)\) \{)\b"
)
_BINARY = {
    " < ": " <= ",
    " <= ": " < ",
    " > ": " >= ",
    " >= ": " > ",
    " == ": " != ",
    " != ": " == ",
    " && ": " || ",
    " || ": " && ",
    " + ": " - ",
    " - ": " + ",
    " / ": " * ",
    " % ": " / ",
    " += ": " -= ",
    " -= ": " += ",
    " |= ": " &= ",
}
_BINARY_TEXT = re.compile("|".join(map(re.escape, _BINARY)))
_CONDITION = re.compile(r"\b(if|while) \(")
_CONSTANT = re.compile(r"(?<![\w.\"\[<])(0|1|2|true|false)(?![\w.\"\]>])")
_OTHER_CONSTANT = {"0": "1", "1": "0", "2": "3", "true": "false", "false": "true"}
_STATEMENT = re.compile(r"(?:\+\+|--)?[a-z_*(][\w.:\[\]>()*-]*?(?=\(| [-+*/|&^]?= |;)")
_NO_STATEMENT = re.compile(
    r"(return|break|continue|case|default|goto|throw|delete|if|while|for|switch|do"
    r"|else|const|static|auto|public|private|protected|explicit|inline|co_\w+"
    r"|sizeof|friend|struct|class|enum|union|noexcept|override)\b"
)
# Warnings are errors here, and what a mutant no longer uses would be one.
_NO_WARNINGS = (
    "".join(
        f'#pragma GCC diagnostic ignored "-W{name}"\n'
        for name in (
            *("unused-variable", "unused-function", "unused-parameter"),
            *("unused-but-set-variable", "unused-value", "unused-const-variable"),
            *("empty-body", "parentheses", "type-limits", "sign-compare"),
            *("uninitialized", "maybe-uninitialized", "misleading-indentation"),
            *("return-type", "implicit-fallthrough", "bool-compare"),
            "int-in-bool-context",
            *("array-bounds", "stringop-overflow", "logical-not-parentheses"),
        )
    )
    + "#line 1\n"
)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """One change of one file: `text[begin:end]` becomes `new`."""

    path: str  # below the root
    line: int
    operator: str
    begin: int
    end: int
    new: str
    before: str  # the line, and what becomes of it, for people and lists
    after: str

    def apply(self, text: str) -> str:
        return _NO_WARNINGS + text[: self.begin] + self.new + text[self.end :]

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}: {self.operator}"
        return f"{place}: {self.before} -> {self.after}"


def code_of(text: str) -> str:
    """Blank what is not code; every offset and line stays."""
    return _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


def _closing(code: str, opening: int) -> int:
    """Return where the parenthesis that opens there closes."""
    depth = 0
    for at in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[at], 0)
        if depth == 0:
            return at
    return -1


def _statement_end(code: str, begin: int) -> int:
    """Return the end of the simple statement there; 0 where there is none."""
    depth = 0
    for at in range(begin, len(code)):
        c = code[at]
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth < 0:
                return 0
        elif c == ";" and depth == 0:
            return at + 1
    return 0


def _in_parentheses(code: str, at: int) -> bool:
    """Whether the innermost bracket around is no brace: `for (; here; )`."""
    depth = 0
    for c in reversed(code[max(0, at - 400) : at]):
        if c in ")]}":
            depth += 1
        elif c in "([{":
            depth -= 1
            if depth < 0:
                return c != "{"
    return False


def _changes(code: str, text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield begin, end, new text and operator of each change."""
    for m in _BINARY_TEXT.finditer(code):
        yield m.start(), m.end(), _BINARY[m[0]], "operator"
    for m in _CONSTANT.finditer(code):
        yield m.start(), m.end(), _OTHER_CONSTANT[m[0]], "constant"
    for m in _CONDITION.finditer(code):
        end = _closing(code, m.end() - 1)
        inside = code[m.end() : end]
        # A declaration inside, `if (Task* task = ...)`, cannot be wrapped.
        if end < 0 or ";" in inside or re.search(r"[^=!<>]=[^=]", inside):
            continue
        inside = text[m.end() : end]
        yield m.end(), end, f"!({inside})", "condition"
        if m[1] == "if" and re.match(r"(?: \[\[\w+\]\])?\s+return\b", code[end + 1 :]):
            yield m.end(), end, f"({inside}) && false", "early return"
    for m in re.finditer(r"(?<=[;{}):])\s+(?=[a-z_*(+-])|(?<=\belse)\s+", code):
        begin = m.end()
        if _NO_STATEMENT.match(code, begin) or not _STATEMENT.match(code, begin):
            continue
        if _in_parentheses(code, begin):
            continue
        end = _statement_end(code, begin)
        # What is longer is a lambda or a mistake of ours.
        if end and "{" not in code[begin:end] and code[begin:end].count("\n") < 5:
            yield begin, end, ";", "statement"


def mutants(root: Path, path: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of the file."""
    text = (root / path).read_text()
    code = code_of(text)
    found = []
    for begin, end, new, operator in sorted(set(_changes(code, text))):
        first = text.rfind("\n", 0, begin) + 1
        last = text.find("\n", end)
        before = text[first:last]
        # A declaration at the outermost level is not run.
        if _LEFT_OUT.search(before) or not before.startswith(" "):
            continue
        after = text[first:begin] + new + text[end:last]
        found.append(
            Mutant(
                path,
                text.count("\n", 0, begin) + 1,
                operator,
                begin,
                end,
                new,
                " ".join(before.split()),
                " ".join(after.split()),
            )
        )
    return found


def in_folder(root: Path, folder: str) -> list[Mutant]:
    """Return all mutants of csrc/FOLDER, headers too, generators not."""
    paths = sorted((root / "csrc" / folder).glob("*.cpp"))
    paths += sorted((root / "csrc" / folder).glob("*.h"))
    return [m for p in paths for m in mutants(root, str(p.relative_to(root)))]
