"""The serving example gives the same answers three ways."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "graph_serve.py"


def test_serving_prints_a_histogram_per_way(child_environment, tmp_path):
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--requests", "100"],
        env=child_environment(),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert done.returncode == 0, done.stderr
    for way in ("cpu, eager", "npu, eager", "npu, replay"):
        assert f"{way}: median" in done.stdout
    assert "#" in done.stdout
