"""What the site adds to environment.md: the variables of `npu-dispatch serve`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from command_page import default_of
from markdown_table import plain, table

from npu_dispatch.observe.serve.command import serve


def service_variables() -> dict[str, click.Option]:
    """Return the options of `serve` by the names of their variables."""
    prefix = serve.context_settings["auto_envvar_prefix"]
    return {
        f"{prefix}_{option.name.upper()}": option
        for option in serve.params
        if isinstance(option, click.Option) and option.expose_value and option.name
    }


def lines() -> Iterator[str]:
    yield from table(
        "variable | option | meaning | default",
        (
            (
                f"`{variable}`",
                f"`{option.opts[0]}`",
                plain(option.help or ""),
                default_of(option) or "none",
            )
            for variable, option in service_variables().items()
        ),
    )
