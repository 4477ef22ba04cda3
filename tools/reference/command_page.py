"""cli.md: what each command says of itself."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

import click
from markdown_table import plain, table

from npu_dispatch.cli import COMMANDS, main

HEAD = """# Command line

`npu-dispatch COMMAND --help`, or `-h`, prints the same.

`pip install` puts `npu-dispatch` beside the Python that it is installed for:
[Installation](installation.md#the-command). `python -m npu_dispatch` is the same
command, and `npu-dispatch --version` names its version.
"""


def lines() -> Iterator[str]:
    yield HEAD
    names = sorted(COMMANDS)
    rows = ((f"[`{name}`](#{name})", plain(COMMANDS[name][1])) for name in names)
    yield from table("command | does", rows)
    top = click.Context(main, info_name="npu-dispatch")
    for name in names:
        command = main.get_command(top, name)
        assert command is not None
        yield from _command(command, click.Context(command, top, info_name=name))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    assert command.help
    usage = command.collect_usage_pieces(context)
    yield f"\n## {context.info_name}\n"
    yield f"    {' '.join([context.command_path, *usage])}"
    for paragraph in command.help.split("\n\n"):
        yield "\n" + textwrap.fill(plain(" ".join(paragraph.split())), 88)
    options = [one for one in command.params if isinstance(one, click.Option)]
    if options:
        yield ""
        yield from table("option | meaning", map(_option, options))


def _option(option: click.Option) -> tuple[str, str]:
    assert option.help
    name = ", ".join(option.opts)
    if not option.is_flag:
        name += f" {option.metavar or option.type.name.split()[0].upper()}"
    told = [plain(option.help)]
    if isinstance(option.type, click.IntRange | click.FloatRange):
        least, most = option.type.min, option.type.max
        told.append(f"{least} or more." if most is None else f"{least} to {most}.")
    if default := default_of(option):
        told.append(f"Default: {default}.")
    return f"`{name}`", " ".join(told)


def default_of(option: click.Option) -> str:
    """Return what the help says of an option's default; "" for none."""
    stated = isinstance(option.default, int | float | str) and not option.is_flag
    return str(option.default) if stated else ""
