"""`npu-dispatch ops` and `doctor`: what there is here, and whether it works."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

import npu_dispatch

__all__ = ["doctor", "ops"]


@click.command()
@click.argument("name", default="")
@click.option("--tier", help="Only operators of this tier.")
def ops(name: str, tier: str | None) -> None:
    """List operators matching NAME and how each executes.

    Prints one operator and its tier per line. Tiers structured, meta and hand launch
    asynchronously, composite operators call others, and synchronous ones wait for the
    device.
    """
    table = (
        (Path(npu_dispatch.__file__).parent / "op_tiers.txt").read_text().splitlines()
    )
    rows = [line.split() for line in table]
    if tier is not None and tier not in {row[0] for row in rows}:
        known = ", ".join(sorted({row[0] for row in rows}))
        raise click.BadParameter(
            f"there is no tier {tier!r}; the tiers are {known}", param_hint="--tier"
        )
    found = [row for row in rows if name in row[1] and tier in (None, row[0])]
    if not found:
        raise click.ClickException(
            f"no operator of torch's has {name!r} in its name; those of other "
            "libraries are asynchronous with a fake kernel, else synchronous"
        )
    for its_tier, operator in found:
        click.echo(f"{its_tier:12} {operator}")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Check the installation; report problems and how to fix them.

    The exit status is 1 if there is a problem, else 0.
    """
    from npu_dispatch.cli.doctor import examine

    found = examine()
    if as_json:
        click.echo(json.dumps(found.as_dict(), indent=2))
    else:
        facts = {"npu_dispatch": npu_dispatch.__version__, **found.facts}
        for name, fact in facts.items():
            click.echo(f"{name:>16}  {fact}")
        for finding in sorted(found.findings, key=lambda f: not f.problem):
            kind = "problem" if finding.problem else "advice"
            click.echo(f"\n{kind:>16}  {finding.what}")
            click.echo(f"{'mend it':>16}  {finding.mend}")
        if not found.findings:
            click.echo("\nnothing is wrong")
    sys.exit(0 if found.healthy else 1)
