"""What the fuzzer has found: mended stays mended, known is still there."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from npu_dispatch.versions import TORCH_VERSION
from tests.differential import corpus
from tests.differential.known import KNOWN
from tests.search.report import ROOT

# As long as a slow machine takes: what is run is bounded by its number.
PATIENCE = 900


@pytest.mark.timeout(PATIENCE + 60)
def test_mended_stays_mended_and_known_is_still_there():
    """Where a known one no longer differs, its program goes to corpus/mended."""
    known = {entry.name for entry in KNOWN}
    assert known == {path.stem for path in corpus.files("known")}
    # In a process that has not used the device.
    done = subprocess.run(
        [sys.executable, "-m", "tests.differential.corpus"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)

    wanted = {f"mended/{path.stem}": "" for path in corpus.files("mended")}
    for entry in KNOWN:
        is_there = TORCH_VERSION.startswith(entry.torch)
        wanted[f"known/{entry.name}"] = entry.name if is_there else ""
    assert shown == wanted
