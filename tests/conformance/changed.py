"""Which of torch's operators run other code than at an earlier commit?

Two kinds are known by name: those whose generated C++ differs, and those named
in a hand-written file that differs. What all operators share (launch.h, the
boxed path) names none; the rotating third is there for it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

GENERATOR = "csrc/ops/codegen"
BY_HAND = "csrc/ops/manual"
_DAY = 24 * 3600


@dataclass(frozen=True)
class Changed:
    """Names without overloads ("add", "add_"), and against what they changed."""

    operators: frozenset[str]
    told: str


def changed(root: Path, base: str | None = None) -> Changed:
    """Return the operators of the working tree that differ from `base`.

    By default from where the branch left origin/main; on that branch itself
    from its newest commit that is a day older than HEAD.
    """
    commit = _commit(root, base) if base else _default_base(root)
    if commit is None:
        if base:
            raise ValueError(f"no commit {base!r} here")
        return Changed(frozenset(), "no older commit to compare with (shallow clone?)")
    found: set[str] = set()
    told = []
    files = _git(root, "diff", "--name-only", commit, "--", GENERATOR, BY_HAND) or ""
    files += _git(root, "ls-files", "-o", "--exclude-standard", "--", BY_HAND) or ""
    if any(f.startswith(GENERATOR) for f in files.split()):
        now = per_operator(_generated(root / GENERATOR))
        then = per_operator(_generated_at(root, commit))
        found |= {name for name, text in now.items() if then.get(name) != text}
        told.append(f"{len(found)} generated")
    for file in (root / f for f in files.split() if f.startswith(BY_HAND)):
        if file.suffix == ".cpp" and file.exists():
            named = operators_named_in(file.read_text())
            found |= named
            told.append(f"{len(named)} of {file.name}")
    summary = ", ".join(told) or "none"
    names = frozenset(name.partition(".")[0] for name in found)
    return Changed(names, f"since {commit[:10]}: {summary}")


def _git(root: Path, *arguments: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", root, *arguments], capture_output=True, text=True
    )
    return done.stdout if done.returncode == 0 else None


def _commit(root: Path, name: str) -> str | None:
    found = _git(root, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    return found.strip() if found else None


def _default_base(root: Path) -> str | None:
    head = _commit(root, "HEAD")
    left = _git(root, "merge-base", "HEAD", "origin/main")
    if left and left.strip() != head:
        return left.strip()
    made = _git(root, "log", "-1", "--format=%ct", "HEAD")
    if not made:
        return None
    before = int(made) - _DAY
    old = _git(root, "rev-list", "-1", f"--before=@{before}", "HEAD")
    return old.strip() if old and old.strip() else None


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
