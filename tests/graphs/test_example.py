"""The serving example gives the same answers three ways."""

from __future__ import annotations

from pathlib import Path

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "graph_serve.py"


def test_serving_prints_a_histogram_per_way(python):
    done = python.run(str(EXAMPLE), "--requests", "100")

    assert done.returncode == 0, done.stderr
    for way in ("cpu, eager", "npu, eager", "npu, replay"):
        assert f"{way}: median" in done.stdout
    assert "#" in done.stdout
