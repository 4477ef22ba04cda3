"""A pytest plugin that writes down what came of each test, at once, as JSON lines.

A foreign suite runs with `-p recorder`; tests/judges/shards.py reads the lines, also
those of a process that a test ended. The environment says what to run:

JUDGES_LOG   file that the lines are added to; what it tells of is not run again
JUDGES_PART  K/N: tests of which a hash of the name is K modulo N
JUDGES_ONLY  file with the names of the only tests to run, one a line
JUDGES_DISGUISE  1: cpu has another name (disguise.py)
JUDGES_SAID  the torch version that the suite is told, where it refuses a newer one
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import disguise
import pytest
import told
import torch

LOG = Path(os.environ["JUDGES_LOG"])
LETTERS = 300  # of a message


def _write(**line: Any) -> None:
    with LOG.open("a") as file:
        file.write(json.dumps(line) + "\n")


def _message(report: Any) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    if crash is not None:
        text = crash.message
    elif isinstance(report.longrepr, tuple):  # where a test was skipped, and why
        text = report.longrepr[2]
    else:
        text = str(report.longrepr)
    return " ".join(text.split())[:LETTERS]


def pytest_configure() -> None:
    if said := os.environ.get("JUDGES_SAID"):
        torch.__version__ = torch.torch_version.TorchVersion(said)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> None:
    done, part = told.read(LOG), os.environ.get("JUDGES_PART", "0/1")
    only = None
    if file := os.environ.get("JUDGES_ONLY"):
        only = set(Path(file).read_text().splitlines())
    kept, left = [], []
    for item in items:
        is_chosen = item.nodeid not in done and told.is_part(item.nodeid, part)
        is_chosen = is_chosen and (only is None or item.nodeid in only)
        (kept if is_chosen else left).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)
    _write(collected=len(kept))


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.failed:
        _write(test=report.nodeid, outcome="failed", message=_message(report))


def pytest_runtest_logstart(nodeid: str) -> None:
    _write(test=nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    if os.environ.get("JUDGES_DISGUISE"):
        disguise.put_on(item)


_outcomes: dict[str, tuple[str, str]] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    outcome, message = _outcomes.get(report.nodeid, ("passed", ""))
    if report.outcome != "passed" and outcome != "failed":
        # A failure that was expected is neither.
        outcome, message = report.outcome, _message(report)
        _outcomes[report.nodeid] = outcome, message
    if report.when == "teardown":
        _outcomes.pop(report.nodeid, None)
        _write(test=report.nodeid, outcome=outcome, message=message)


def pytest_sessionfinish() -> None:
    _write(finished=True)
