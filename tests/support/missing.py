"""What a machine may lack: tests say so and skip, and CI fails.

What a machine or a sandbox does not let anybody test is skipped in CI, too: those
reasons, and no others, are in ALLOWED_IN_CI. tests/conftest.py sees to it.
"""

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest

ALLOWED_IN_CI = (
    "no IPv6",
    "no mounts of one's own here",
    "one core is the limit already",
    "only root gives files away",
    "only root gives folders away",
)


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true")


def missing(what: str, remedy: str) -> NoReturn:
    """Skip the test; where CI=1 or CI=true, fail it: nothing goes unseen there."""
    message = f"{what} is missing: {remedy}"
    if in_ci():
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def need_tool(*names: str, remedy: str) -> str:
    """Return the path of the first of these programs that is there."""
    for name in names:
        if path := shutil.which(name):
            return path
    missing(names[0], remedy)


def need_module(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not name.startswith(error.name):
            raise
        missing(name, "pip install 'npu_dispatch[dev]'")


def refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of a skip that CI does not allow."""
    if not (in_ci() and report.skipped) or hasattr(report, "wasxfail"):
        return
    assert isinstance(report.longrepr, tuple)
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if reason not in ALLOWED_IN_CI:
        report.outcome = "failed"
        report.longrepr = f"skipped, which CI does not allow: {reason}"
