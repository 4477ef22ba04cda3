"""Which small mistakes could be made in a C++ file: classical mutation operators,
and weaker memory orders.

They look at the text, which clang-format has put into one shape: an operator
of two operands has spaces around it, a template's brackets have none. Many
mistakes are compiled into one program (`plant`), each behind its number
(switch.h): a mistake is a piece of the text, an expression or a statement, and
what it becomes.
"""

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
    r"|operator|alignas|namespace|prefetch\w*|pause)\b"
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
_ASSIGNMENTS = (" += ", " -= ", " |= ")
# To the next weaker order that the standard allows there; the rest says why in a
# comment, and a model or ThreadSanitizer has to say it, too.
_ORDERS = {
    "acquire": "relaxed",
    "release": "relaxed",
    "acq_rel": "relaxed",
    "seq_cst": "acq_rel",
}
_ORDER = re.compile(r"std::memory_order_(acquire|release|acq_rel|seq_cst)\b")
# What seq_cst becomes where the operation is only half of acq_rel.
_HALF = {"load": "acquire", "store": "release"}
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
            *("int-in-bool-context", "narrowing", "dangling-else"),
            *("array-bounds", "stringop-overflow", "logical-not-parentheses"),
        )
    )
    + '#include "tests/mutants/switch.h"\n'
    + "#line 1\n"
)
ORDER = "order"


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
    # The expression or statement that has the change in it.
    first: int
    last: int
    lines: range

    @property
    def is_order(self) -> bool:
        return self.operator == ORDER

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}: {self.operator}"
        return f"{place}: {self.before} -> {self.after}"


def plant(text: str, numbered: dict[int, Mutant]) -> str:
    """Return the text with all of these mutants of one file behind their numbers."""
    # Outer ones first; where two pieces overlap, `without_overlaps` left one out.
    order = sorted(numbered, key=lambda n: (numbered[n].first, -numbered[n].last))

    def render(begin: int, end: int, inside: list[int]) -> str:
        parts, at = [], begin
        while inside:
            n, mutant = inside[0], numbered[inside[0]]
            within = [i for i in inside[1:] if numbered[i].last <= mutant.last]
            inside = inside[1 + len(within) :]
            original = render(mutant.first, mutant.last, within)
            parts += [text[at : mutant.first], _switched(n, mutant, text, original)]
            at = mutant.last
        return "".join(parts) + text[at:end]

    return _NO_WARNINGS + render(0, len(text), order)


def without_overlaps(chosen: list[Mutant]) -> list[Mutant]:
    """Leave out those whose piece crosses the piece of an earlier one."""
    kept: list[Mutant] = []
    for m in chosen:
        crosses = (
            o.first < m.first < o.last < m.last or m.first < o.first < m.last < o.last
            for o in kept
            if o.path == m.path
        )
        if not any(crosses):
            kept.append(m)
    return kept


def _switched(n: int, mutant: Mutant, text: str, original: str) -> str:
    if mutant.operator == "statement":
        return f"{{ if (!npu_mutant({n})) {{ {original} }} }}"
    changed = text[mutant.first : mutant.begin] + mutant.new
    changed += text[mutant.end : mutant.last]
    # On one line: what follows keeps its number.
    changed = " ".join(_COMMENT_OR_STRING.sub(_no_comment, changed).split("\n"))
    if mutant.operator in ("condition", "early return"):
        changed, original = f"bool({changed})", f"bool({original})"
    return f"(npu_mutant({n}) ? ({changed}) : ({original}))"


_COMMENT_OR_STRING = re.compile(
    r"""//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])'""", re.DOTALL
)


def _no_comment(match: re.Match[str]) -> str:
    return " " if match[0].startswith("/") else match[0]


def code_of(text: str) -> str:
    """Blank what is not code; every offset and line stays."""
    return _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)


_DEEPER = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}


def _other_bracket(code: str, at: int, step: int) -> int:
    """Return where the bracket closes (step 1) or opens (-1); -1 for nowhere."""
    depth = 0
    while 0 <= at < len(code):
        depth += _DEEPER.get(code[at], 0)
        if depth == 0:
            return at
        at += step
    return -1


def _statement_end(code: str, begin: int) -> int:
    """Return the end of the simple statement there; 0 where there is none."""
    depth = 0
    for at in range(begin, len(code)):
        depth += _DEEPER.get(code[at], 0)
        if depth < 0:
            return 0
        if code[at] == ";" and depth == 0:
            return at + 1
    return 0


def _in_parentheses(code: str, at: int) -> bool:
    """Whether the innermost bracket around is no brace: `for (; here; )`."""
    depth = 0
    for c in reversed(code[max(0, at - 400) : at]):
        depth += _DEEPER.get(c, 0)
        if depth > 0:
            return c != "{"
    return False


# What an expression begins behind, read from its operator to the left.
_BEFORE_EXPRESSION = re.compile(
    r"(?:[;{},]|(?<!:):(?=\s)|\?(?=\s)| [-+*/|&^%]?=(?= )|<<=|\]\]"
    r"|\b(?:return|else|do|throw|case))$"
)
_AFTER_EXPRESSION = re.compile(r"\s\?\s|\s:\s")
_KEYWORD = re.compile(r"\b(?:if|while|for|switch)(?: constexpr)? $")


def _expression(code: str, begin: int, end: int) -> tuple[int, int]:
    """Return where the largest expression around an operator begins and ends."""
    # What is assigned may be a choice; other operators bind more tightly than `?`.
    assigns = code[begin:end] in _ASSIGNMENTS
    first = begin
    while first > 0 and code[first - 1] not in "([{":
        if _BEFORE_EXPRESSION.search(code, max(0, first - 16), first):
            break
        if code[first - 1] in ")]}":
            opening = _other_bracket(code, first - 1, -1)
            if _KEYWORD.search(code, max(0, opening - 20), opening):
                break
            first = opening
        else:
            first -= 1
    last, depth = end, 0
    while last < len(code):
        c = code[last]
        if depth == 0 and c in ")]};,":
            break
        if depth == 0 and not assigns and _AFTER_EXPRESSION.match(code, last):
            break
        depth += _DEEPER.get(c, 0)
        last += 1
    while first < begin and code[first].isspace():
        first += 1
    return first, last


def _weaker(code: str, m: re.Match[str]) -> str:
    weaker = _ORDERS[m[1]]
    if weaker == "acq_rel":
        call = re.findall(
            r"\.(load|store)\(", code[max(0, m.start() - 120) : m.start()]
        )
        weaker = _HALF.get(call[-1], weaker) if call else weaker
    return f"std::memory_order_{weaker}"


def _changes(code: str, text: str) -> Iterator[tuple[int, int, str, str]]:
    """Yield begin, end, new text and operator of each change."""
    for m in _ORDER.finditer(code):
        yield m.start(), m.end(), _weaker(code, m), ORDER
    for m in _BINARY_TEXT.finditer(code):
        yield m.start(), m.end(), _BINARY[m[0]], "operator"
    for m in _CONSTANT.finditer(code):
        yield m.start(), m.end(), _OTHER_CONSTANT[m[0]], "constant"
    for m in _CONDITION.finditer(code):
        end = _other_bracket(code, m.end() - 1, 1)
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
        piece = (begin, end)
        if operator == "operator":
            piece = _expression(code, begin, end)
        if "#" in code[piece[0] : piece[1]]:
            continue
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
                *piece,
                range(
                    text.count("\n", 0, piece[0]) + 1, text.count("\n", 0, piece[1]) + 2
                ),
            )
        )
    return found


def in_folder(root: Path, folder: str) -> list[Mutant]:
    """Return all mutants of csrc/FOLDER, headers too, generators not."""
    paths = sorted((root / "csrc" / folder).rglob("*.cpp"))
    paths += sorted((root / "csrc" / folder).rglob("*.h"))
    return [m for p in paths for m in mutants(root, str(p.relative_to(root)))]
