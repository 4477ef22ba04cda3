"""What a machine may lack: tests say so and skip, and CI fails."""

from __future__ import annotations

import importlib
import os
import shutil
from types import ModuleType
from typing import NoReturn

import pytest


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
