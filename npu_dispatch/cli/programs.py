"""`npu-dispatch run` and `sanitize`: a program, and what is said after it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npu_dispatch.cli.device_names import device_names, register_by_names
from npu_dispatch.cli.output_file import OUTPUT_FILE
from npu_dispatch.cli.sanitized import run_sanitized, told
from npu_dispatch.config import Config
from npu_dispatch.own_python import users_python
from npu_dispatch.program import AFTER_DASHES, Runner, run_program, what_to_run

if TYPE_CHECKING:
    import torch

    from npu_dispatch.observe.judge.steps import Steps

__all__ = ["run", "sanitize"]


@click.command(
    cls=Runner,
    options_metavar="[OPTIONS] SCRIPT | -m MODULE",
)
@click.option(
    "--json",
    "json_file",
    type=OUTPUT_FILE,
    help="Write the figures to FILE as JSON.",
)
@click.option("--quiet", is_flag=True, help="Do not print the summary.")
@click.option(
    "--compiled",
    is_flag=True,
    help="Also report, line by line, what torch.compile compiled. Inductor's graph "
    "cache is off.",
)
@device_names
@click.option("-m", "module", help="Run a module, like `python -m`.")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    json_file: Path | None,
    quiet: bool,
    compiled: bool,
    module: str | None,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with the device loaded and print a summary to stderr.

    The summary shows what limits the program, how long a step takes, the lines that
    wait and launch most, and what to try next.

    The exit status is the script's own. --torch-npu and --cuda also apply to child
    processes.
    """
    from npu_dispatch.inductor import report
    from npu_dispatch.observe.judge import summary

    what, args = what_to_run(module, args)
    register_by_names()
    if compiled:
        report.start()
    started = summary.Watch()
    _count_steps(started.steps)
    status = run_program(what, args)
    left = _finish_work()
    status = status or left
    figures = started.figures()
    rows = report.rows() if compiled else []
    if json_file is not None:
        found = figures and figures.as_dict()
        if compiled:
            found = {**(found or {}), "compiled": [row._asdict() for row in rows]}
        json_file.write_text(json.dumps(found, indent=2) + "\n")
    if not quiet:
        summary.show(figures)
        if not (figures and figures.launches):
            _say_what_stays_on_cpu()
    if compiled:
        report.show(rows)
    sys.exit(status)


# They look for torch_npu, and take the cpu without a word where it is not there.
_LOOK_FOR_TORCH_NPU = ("transformers", "accelerate", "deepspeed")


def _say_what_stays_on_cpu() -> None:
    loaded = [name for name in _LOOK_FOR_TORCH_NPU if name in sys.modules]
    if loaded and "torch_npu" not in sys.modules:
        click.echo(
            f"npu: {' and '.join(loaded)} found no npu and the program launched "
            "nothing on it; with --torch-npu they find it (docs/libraries.md)",
            err=True,
        )


def _count_steps(steps: Steps) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from npu_dispatch import npu

    def stepped(optimizer: torch.optim.Optimizer, *_: object) -> None:
        # What is captured has not happened yet.
        if not npu.is_initialized() or not npu.is_current_stream_capturing():
            steps.stepped(optimizer)

    register_optimizer_step_post_hook(stepped)


def _finish_work() -> int:
    """Wait for what the script left queued; return 1 if some of it failed."""
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


@click.command(
    cls=Runner,
    options_metavar="[OPTIONS] SCRIPT | -m MODULE | -- COMMAND",
)
@click.option(
    "--json",
    "json_file",
    type=OUTPUT_FILE,
    help="Write the findings to FILE as JSON.",
)
@click.option(
    "--sarif",
    "sarif_file",
    type=OUTPUT_FILE,
    help="Write the findings to FILE as SARIF, which code hosts show in a diff.",
)
@click.option(
    "--suppressions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File of known findings to leave out; default: "
    "TORCH_NPU_SANITIZER_SUPPRESSIONS.",
)
@click.option("--raise", "raises", is_flag=True, help="Stop at the first finding.")
@device_names
@click.option("-m", "module", help="Run a module, like `python -m`.")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def sanitize(
    context: click.Context,
    json_file: Path | None,
    sarif_file: Path | None,
    suppressions: Path | None,
    raises: bool,
    module: str | None,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT and report memory accesses that no stream order separates.

    Child processes are checked, too. The exit status is the script's own; if that is
    0, it is 66 when there are findings, when a process was killed or still runs, or
    when no process used npu. --torch-npu and --cuda also apply to child processes.
    """
    from npu_dispatch import sanitizer

    command = _command(context, module, args)
    known = suppressions or Config.read().sanitizer_suppressions
    try:
        if known is not None:
            sanitizer.Suppressions.read(known)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--suppressions") from None
    try:
        status, processes = run_sanitized(
            command,
            "raise" if raises else "report",
            Path(known).absolute() if known else None,
        )
    except OSError as error:
        raise click.ClickException(str(error)) from None
    found = [report for process in processes for report in process.reports]
    if json_file is not None:
        json_file.write_text(sanitizer.to_json(found) + "\n")
    if sarif_file is not None:
        sarif_file.write_text(sanitizer.to_sarif(found) + "\n")
    for line in told(processes):
        click.echo(line, err=True)
    clean = processes and not found and all(process.ended for process in processes)
    sys.exit(status or (0 if clean else 66))


def _command(
    context: click.Context, module: str | None, args: tuple[str, ...]
) -> list[str]:
    """Return the command to run: a program of any kind behind `--`, else Python."""
    after_dashes = context.meta.get(AFTER_DASHES) and module is None
    if after_dashes and args and not args[0].endswith(".py"):
        return list(args)
    what, args = what_to_run(module, args)
    words = [*(["-m"] if module else []), str(what), *args]
    if Config.read().torch_npu_alias:
        # A program that imports torch_npu before torch needs it there from the start.
        words = ["-m", "npu_dispatch", "run", "--quiet", *words]
    return users_python(*words)
