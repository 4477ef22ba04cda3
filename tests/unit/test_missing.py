"""What a machine lacks is told, and in CI it is a failure."""

from __future__ import annotations

import sys

import pytest
from missing import need_module, need_tool


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("1", pytest.fail), ("true", pytest.fail), ("", pytest.skip), ("0", pytest.skip)],
)
def test_a_missing_tool_or_module_fails_in_ci_only(monkeypatch, ci, outcome):
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome.Exception, match="no-such-tool is missing: get one"):
        need_tool("no-such-tool", "nor-this", remedy="get one")
    with pytest.raises(outcome.Exception, match=r"no_such_module\.part is missing"):
        need_module("no_such_module.part")


def test_what_is_there_is_found(monkeypatch):
    monkeypatch.setenv("CI", "1")

    assert need_tool("no-such-tool", "sh", remedy="").endswith("/sh")
    assert need_module("json.decoder") is sys.modules["json.decoder"]
