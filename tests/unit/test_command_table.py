"""The table of the commands says what the commands say."""

from __future__ import annotations

import click
import pytest

from npu_dispatch.cli.group import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_the_table_has_each_commands_own_first_sentence(name: str):
    context = click.Context(main)
    command = main.get_command(context, name)

    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(limit=200) == COMMANDS[name][1]


def test_the_help_loads_none_of_the_commands(fresh_python):
    code = """
import sys
from npu_dispatch.cli import main
main(["--help"], standalone_mode=False)
ours = {m for m in sys.modules if m.startswith("npu_dispatch.")}
print(sorted(ours))
"""
    loaded = fresh_python(code).stdout.splitlines()[-1]

    assert loaded == str(["npu_dispatch.cli", "npu_dispatch.cli.group"])
