"""Which of torch's operators run other code than at an earlier commit?

And which entries of OpInfo come to them.

Code is what lies below csrc/ops and csrc/host, and RECHECKS says of each file what a
change of it rechecks. Comments are no code.
"""

import itertools
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import torch
from torch.autograd.profiler import profile
from torch.testing._internal.opinfo.core import OpInfo

from tests.conformance.calls import Call
from tests.conformance.checks import CALL_ERRORS, HOST_ARGUMENTS, WINDOW

OPS = "csrc/ops"
ROOMS = (OPS, "csrc/host")
GENERATOR = f"{OPS}/codegen"
_DAY = 24 * 3600


@dataclass(frozen=True)
class Changed:
    """Names without overloads ("add", "add_"), and against what they changed."""

    operators: frozenset[str]
    told: str
    # Something changed that all operators share.
    everything: bool = False


# Of a file's text then and now: the operators to recheck, None: all there are.
Rule = Callable[[str, str], set[str] | None]


def changed(root: Path, base: str | None = None) -> Changed:
    """Return the operators of the working tree that differ from `base`.

    By default from the newest commit that is a day older than HEAD: which one that
    is follows from HEAD alone. A commit's own changes are always among them.
    """
    commit = _commit(root, base) if base else _default_base(root)
    if commit is None:
        if base:
            raise ValueError(f"no commit {base!r} here")
        return Changed(frozenset(), "no older commit to compare with (shallow clone?)")
    found: set[str] = set()
    told = []
    everything = False
    files = (_git(root, "diff", "--name-only", commit, "--", *ROOMS) or "").split()
    others = _git(root, "ls-files", "-o", "--exclude-standard", "--", *ROOMS) or ""
    if any(f.startswith(GENERATOR) for f in files):
        now = per_operator(_generated(root / GENERATOR))
        then = per_operator(_generated_at(root, commit))
        found |= _that_differ(then, now)
        told.append(f"{len(found)} generated")
    for file in sorted({*files, *others.split()}):
        rule = rule_of(file)
        before = without_comments(_git(root, "show", f"{commit}:{file}") or "")
        path = root / file
        after = without_comments(path.read_text()) if path.exists() else ""
        if rule is None or before == after:
            continue
        named = rule(before, after)
        everything = everything or named is None
        found |= named or set()
        of = "everything" if named is None else f"{len(named)}"
        told.append(f"{of} of {path.name}")
    summary = ", ".join(told) or "none"
    names = frozenset(name.partition(".")[0] for name in found)
    return Changed(names, f"since {commit[:10]}: {summary}", everything)


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", root, *arguments], capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else None


def _commit(root: Path, name: str) -> str | None:
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return found.strip() if found else None


def _default_base(root: Path) -> str | None:
    made = _git(root, "log", "-1", "--format=%ct", "HEAD")
    if not made:
        return None
    before = int(made) - _DAY
    old = _git(root, "rev-list", "-1", f"--before=@{before}", "HEAD")
    return old.strip() if old and old.strip() else None


def without_comments(source: str) -> str:
    """Return C++ without comments at the ends of lines, nor empty lines."""
    lines = (re.sub(r"\s*//.*", "", line) for line in source.splitlines())
    return "\n".join(line for line in lines if line.strip())


def _all_named(then: str, now: str) -> set[str] | None:
    return operators_named_in(then + now) or None


def _entries(then: str, now: str) -> set[str] | None:
    """Operators whose row of a table changed, or a function that the row names."""
    before, after = per_row(then), per_row(now)
    # What no row comes to belongs to all rows.
    if before.pop("", "") != after.pop("", ""):
        return _all_named(then, now)
    return _that_differ(before, after)


def _these(*operators: str) -> Rule:
    return lambda then, now: set(operators)


def _everything(then: str, now: str) -> None:
    return None


# The first pattern that a file's name below its room fits is its rule. A file
# that is to name its operators, and names none, is one that all of them share.
# Of the generator what it writes is compared.
RECHECKS: dict[str, Rule | None] = {
    "codegen/*": None,
    "manual/*": _all_named,
    "shapes_*.cpp": _entries,
    "widened.cpp": _entries,
    "unmarked_writes.cpp": _entries,
    "half_products.*": _these("mm", "bmm", "addmm", "baddbmm"),
    "range_length.*": _these("arange"),
    "*.md": _these(),
    "*": _everything,
}


def rule_of(file: str) -> Rule | None:
    name = file.split("/", 2)[2]
    return next(rule for glob, rule in RECHECKS.items() if fnmatch(name, glob))


def _that_differ(then: dict[str, str], now: dict[str, str]) -> set[str]:
    return {name for name in {*then, *now} if then.get(name) != now.get(name)}


def _generated(directory: Path) -> str:
    """Return what the generator in a directory writes."""
    with tempfile.TemporaryDirectory() as out:
        subprocess.run(
            [sys.executable, directory / "gen.py", out, "1"],
            check=True,
            capture_output=True,
        )
        return "\n".join(p.read_text() for p in sorted(Path(out).iterdir()))


def _generated_at(root: Path, commit: str) -> str:
    """Return what a commit's generator writes; nothing when it does not run here."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as packed:
        done = subprocess.run(
            ["git", "-C", root, "archive", commit, GENERATOR], stdout=packed
        )
        if done.returncode != 0:  # it had none
            return ""
        packed.seek(0)
        with tarfile.open(fileobj=packed) as archive:
            archive.extractall(folder, filter="data")
        try:
            return _generated(Path(folder) / GENERATOR)
        except subprocess.CalledProcessError:
            return ""


def per_operator(generated: str) -> dict[str, str]:
    """Return {"add.Tensor": its registration, wrapper and runner}."""
    parts = generated.split("\n\n")
    runners = {
        found[1]: part
        for part in parts
        if (found := re.match(r"void (run_\w+)\(", part))
    }
    wrappers = {
        found[1]: part
        for part in parts
        if (found := re.search(r"^[^\n]*\b(call_\w+)\([^\n]*\{$", part, re.MULTILINE))
    }
    texts = {}
    for found in re.finditer(r'm\.impl\(\s*"([^"]+)",\s*TORCH_FN\((\w+)\)', generated):
        wrapper = wrappers.get(found[2], "")
        used = sorted(set(re.findall(r"\brun_\w+", wrapper)))
        texts[found[1]] = "\n".join(
            [found[0], wrapper, *(runners.get(name, "") for name in used)]
        )
    return texts


def operators_named_in(source: str) -> set[str]:
    """Return the operators that a file names in its string literals.

    A literal that ends in "_" stands for all operators that begin so, too.
    """
    known = {
        name.removeprefix("aten::").partition(".")[0]
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith("aten::")
    }
    found: set[str] = set()
    for literal in re.findall(r'"((?:aten::)?[A-Za-z_][\w.]*)"', source):
        name = literal.removeprefix("aten::").partition(".")[0]
        if name in known:
            found.add(name)
        elif name.endswith("_"):
            found |= {full for full in known if full.startswith(name)}
    return found


_ROW = re.compile(r'\{\s*"aten::([\w.]+)",[^{}]*\},?')
_DEFINES = re.compile(
    r"^(?:struct|class|enum class) (\w+)|^[^\s#}][^\n(;={]*?\b(\w+)(?:\(|\[\]| =)",
    re.MULTILINE,
)


def per_row(source: str) -> dict[str, str]:
    """Return {"trace": its row and the definitions that the row comes to}.

    And {"": what no row comes to}. What is included is a file of its own.
    """
    source = re.sub(r"(?m)^#include.*\n", "", source)
    rows = {found[1]: found[0] for found in _ROW.finditer(source)}
    definitions: dict[str, str] = {}
    rest = []
    for part in re.split(r"(?m)(?<=;)\n(?=[^\s}])|(?<=^\})\n|(?<=^\};)\n", source):
        names = _DEFINES.search(part)
        if names and not _ROW.search(part):
            name = names[1] or names[2]
            definitions[name] = definitions.get(name, "") + part
        else:
            rest.append(_ROW.sub("", part).replace("}", ""))

    texts, reached = {}, set()
    for operator, row in rows.items():
        sought, seen = _words(row), set()
        while new := (sought & set(definitions)) - seen:
            seen |= new
            sought = set().union(*(_words(definitions[name]) for name in new))
        reached |= seen
        texts[operator] = "\n".join([row, *(definitions[n] for n in sorted(seen))])
    rest += [text for name, text in definitions.items() if name not in reached]
    return {**texts, "": " ".join(" ".join(rest).split())}


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text))


# Called past the dispatcher, so that no profiler sees them: by whom.
_UNSEEN = {"_fused_sdp_choice": "scaled_dot_product_attention"}


def reached(op: OpInfo, device: str) -> set[str]:
    """Return the names ("add") that its first samples call, forward and backward.

    In whatever depth: attention comes to `_fused_sdp_choice` by way of others.
    """
    names = {op.aten_name}
    if not op.dtypes:
        return names

    @contextmanager
    def watch() -> Iterator[None]:
        with profile(use_kineto=False) as seen:
            yield
        names.update(
            event.name.removeprefix("aten::")
            for event in seen.function_events or ()
            if event.name.startswith("aten::")
        )

    dtype = torch.float32 if torch.float32 in op.dtypes else min(op.dtypes, key=str)
    differentiable = op.supports_autograd and dtype == torch.float32
    try:
        samples = op.sample_inputs("cpu", dtype, requires_grad=differentiable)
        for sample in itertools.islice(samples, WINDOW):
            call = Call(
                op,
                sample,
                host_arguments=op.name in HOST_ARGUMENTS,
                backward="" if differentiable else None,
                watch=watch,
            )
            try:
                call.make(torch.device(device))
            except CALL_ERRORS:
                continue
    except CALL_ERRORS:
        pass
    return names


def touches(names: set[str], changed: frozenset[str]) -> bool:
    """Return whether a name is among the changed, in whatever form."""
    sought = {_UNSEEN.get(n, n).rstrip("_") for n in changed}
    return bool({n.rstrip("_") for n in names} & sought)
