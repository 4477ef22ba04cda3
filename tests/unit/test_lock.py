"""The tools of a developer are the same until somebody renews them."""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canonical

sys.path.append(str(Path(__file__).resolve().parents[2] / "tools"))
import requirements

LOCK = Path(requirements.__file__).with_name("requirements.lock")


def test_what_pyproject_asks_for_is_locked_at_a_version_that_it_allows():
    lines = LOCK.read_text().splitlines()
    locked = [Requirement(line) for line in lines if not line.startswith("#")]
    wrong = []
    for asked in map(Requirement, requirements.dev()):
        found = [one for one in locked if canonical(one.name) == canonical(asked.name)]
        versions = [next(iter(one.specifier)).version for one in found]
        if not versions or not all(map(asked.specifier.contains, versions)):
            wrong.append(f"{asked}: locked at {versions}; run `make lock`")

    assert not wrong
    assert all(str(one.specifier).startswith("==") for one in locked)
