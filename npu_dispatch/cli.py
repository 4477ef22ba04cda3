"""The command `npu-dispatch`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

import npu_dispatch
from npu_dispatch import cli_plan, cli_watch
from npu_dispatch.program import Runner, run_program, what_to_run
from npu_dispatch.service.command import export, serve

__all__ = ["main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(npu_dispatch.__version__)
def main() -> None:
    """Run PyTorch programs on the device `npu`, and look at what it did."""


main.add_command(serve)
main.add_command(export)


@main.command()
@click.argument("name", default="")
@click.option("--tier", help="Only operators of this tier.")
def ops(name: str, tier: str | None) -> None:
    """Say how operators run: all of those whose name contains NAME.

    One a line, with its tier: structured, meta and hand launch asynchronously,
    composite ones are made of others, synchronous ones wait for the device.
    """
    table = (Path(__file__).parent / "op_tiers.txt").read_text().splitlines()
    rows = [line.split() for line in table]
    if tier is not None and tier not in {row[0] for row in rows}:
        known = ", ".join(sorted({row[0] for row in rows}))
        raise click.BadParameter(f"{tier!r} is none of {known}", param_hint="--tier")
    found = [row for row in rows if name in row[1] and tier in (None, row[0])]
    if not found:
        raise click.ClickException(
            f"no operator of torch's has {name!r} in its name; those of other "
            "libraries are asynchronous with a fake kernel, else synchronous"
        )
    for its_tier, operator in found:
        click.echo(f"{its_tier:12} {operator}")


@main.command(
    cls=Runner,
    options_metavar="[OPTIONS] SCRIPT | -m MODULE",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the figures to this file.",
)
@click.option("--quiet", is_flag=True, help="Print no summary.")
@click.option("--torch-npu", is_flag=True, help="Let it import torch_npu.")
@click.option("--cuda", is_flag=True, help='Let torch.cuda and "cuda" mean the npu.')
@click.option("-m", "module", help="A module to run, as `python -m` does.")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    json_file: Path | None,
    quiet: bool,
    torch_npu: bool,
    cuda: bool,
    module: str | None,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with the device loaded; end with a summary on stderr.

    The exit status is the script's own. --torch-npu and --cuda hold for the
    processes that it starts, too.
    """
    from npu_dispatch import summary
    from npu_dispatch.config import set_for_children

    what, args = what_to_run(module, args)
    npu_dispatch.register()
    if torch_npu:
        set_for_children("NPU_DISPATCH_TORCH_NPU_ALIAS", "1")
        npu_dispatch.install_torch_npu_alias()
    if cuda:
        set_for_children("NPU_DISPATCH_CUDA", "1")
        npu_dispatch.redirect_cuda()
    watch = summary.Watch()
    status = run_program(what, args)
    left = _finish_work()
    status = status or left
    figures = watch.figures()
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_text(json.dumps(figures and figures.as_dict(), indent=2) + "\n")
    if not quiet:
        summary.show(figures)
    sys.exit(status)


def _finish_work() -> int:
    """Wait for what the script left queued; 1 if some of it failed."""
    from npu_dispatch import npu
    from npu_dispatch.npu.runtime.exit import finish_or_drop

    if not npu.is_initialized():
        return 0
    finish_or_drop()
    try:
        for index in range(npu.device_count()):
            npu.synchronize(index)
    except RuntimeError as error:
        click.echo(f"after the script's end: {error}", err=True)
        return 1
    return 0


@main.command(
    cls=Runner,
    options_metavar="[OPTIONS] SCRIPT | -m MODULE",
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--sarif", "sarif_file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--suppressions", type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@click.option("--raise", "raises", is_flag=True, help="Stop at the first finding.")
@click.option("-m", "module", help="A module to run, as `python -m` does.")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def sanitize(
    json_file: Path | None,
    sarif_file: Path | None,
    suppressions: Path | None,
    raises: bool,
    module: str | None,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT and report accesses to memory that nothing orders.

    The exit status is the script's own, or 66 when something was found.
    """
    from npu_dispatch import sanitizer
    from npu_dispatch.config import Config

    what, args = what_to_run(module, args)
    known = suppressions or Config.read().sanitizer_suppressions
    try:
        npu_dispatch.enable_npu_sanitizer("raise" if raises else "report", known)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--suppressions") from None
    from npu_dispatch.npu import _sanitizer

    status = run_program(what, args)
    left = _finish_work()
    status = status or left
    found = _sanitizer.reports()
    if json_file is not None:
        json_file.write_text(sanitizer.to_json(found) + "\n")
    if sarif_file is not None:
        sarif_file.write_text(sanitizer.to_sarif(found) + "\n")
    for report in found:
        click.echo(report.text(), err=True)
    click.echo(f"npu sanitizer: {len(found)} findings", err=True)
    sys.exit(status or (66 if found else 0))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def doctor(as_json: bool) -> None:
    """Say what is installed, what is wrong with it, and what mends that.

    The exit status is 1 when the device does not work as it should; advice
    alone leaves it 0.
    """
    from npu_dispatch.doctor import examine

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


main.add_command(cli_plan.plan)
main.add_command(cli_plan.calibrate)
for command in ("dump", "postmortem", "ps", "top", "trace"):
    main.add_command(getattr(cli_watch, command))


if __name__ == "__main__":
    main()
