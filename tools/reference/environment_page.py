"""environment.md: all variables, with those of `npu-dispatch serve`."""

from __future__ import annotations

from collections.abc import Iterator

import click
from markdown_table import plain, table

from npu_dispatch.observe.serve.command import serve
from npu_dispatch.variables import GROUPS

HEAD = """# Environment variables

Most variables are read once: when the process loads the device, or when it first does
what the variable is about. So set them before the program starts, or inside of it
before `import torch`. For a switch, 1, `true`, `yes` and `on` mean on, and 0, `false`,
`no` and `off` mean off. The engine names a number, size or switch that it cannot read
on stderr and takes the default. `npu-dispatch doctor` names variables that begin with
`NPU_DISPATCH_` and are none of these.
"""

SERVICE = """
## `npu-dispatch serve`

The service takes each of its options from a variable, too. An option on the command
line comes first, then the variable, then the file that `--config` names.
"""


def service_variables() -> dict[str, click.Option]:
    """Return the options of `serve` by the names of their variables."""
    prefix = serve.context_settings["auto_envvar_prefix"]
    return {
        f"{prefix}_{option.name.upper()}": option
        for option in serve.params
        if isinstance(option, click.Option) and option.expose_value and option.name
    }


def lines() -> Iterator[str]:
    yield HEAD.rstrip()
    for group, variables in GROUPS.items():
        yield f"\n## {group}\n"
        rows = ((f"`{one.name}`", one.meaning, one.default) for one in variables)
        yield from table("variable | meaning | default", rows)
    yield SERVICE
    yield from table(
        "variable | option | meaning | default",
        (
            (
                f"`{variable}`",
                f"`{option.opts[0]}`",
                plain(option.help or ""),
                str(option.default) if option.show_default else "none",
            )
            for variable, option in service_variables().items()
        ),
    )
