"""Correct programs give no report: suites that use streams, threads and loops.

`make test-sanitized` is the same for everything, examples too; this is the part
that takes seconds, in one process of its own. Chosen is what orders work in a
way of its own: events and pools, loops that await, replays beside eager work,
kernels in Python, and code that is not ours on our streams.
"""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
SUITES = (
    "unit/test_streams.py",
    "unit/test_events.py",
    "aio/test_await.py",
    "graphs/test_streams.py",
    "ecosystem/test_custom_ops.py",
    "ecosystem/test_foreign_work.py",
)


def test_suites_that_use_streams_give_no_report(fresh_python, child_environment):
    result = fresh_python.run(
        *("-m", "pytest", "-q", "--npu-sanitize", "-p", "no:cacheprovider"),
        *("-p", "no:xdist", "--rootdir", str(TESTS.parent)),
        *("-c", str(TESTS.parent / "pyproject.toml")),
        *(str(TESTS / suite) for suite in SUITES),
        env=child_environment(TORCH_NPU_SANITIZER="1"),
        timeout=170,
    )
    said = result.stdout + result.stderr

    assert "npu sanitizer:" not in said
    assert result.returncode == 0, said
    for suite in SUITES:
        assert (TESTS / suite).exists()
    assert " passed" in result.stdout
