"""`npu-dispatch run` and `sanitize`: a program, and what is said after it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

import npu_dispatch
from npu_dispatch.cli.device_names import device_names, register_by_names
from npu_dispatch.program import Runner, run_program, what_to_run

if TYPE_CHECKING:
    import torch

    from npu_dispatch.diagnosis.steps import Steps

__all__ = ["run", "sanitize"]


@click.command(
    cls=Runner,
    options_metavar="[OPTIONS] SCRIPT | -m MODULE",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the figures to this file, as JSON.",
)
@click.option("--quiet", is_flag=True, help="Print no summary.")
@click.option(
    "--compiled",
    is_flag=True,
    help="Also tell, line by line, what torch.compile made of it. Inductor's cached "
    "graphs are not used.",
)
@device_names
@click.option("-m", "module", help="A module to run, as `python -m` does.")
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run(
    json_file: Path | None,
    quiet: bool,
    compiled: bool,
    module: str | None,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with the device loaded; end with a summary on stderr.

    The summary ends with a verdict: what holds the program up, how long a step takes,
    the lines that wait and launch most, and what to try next.

    The exit status is the script's own. --torch-npu and --cuda hold for the
    processes that it starts, too.
    """
    from npu_dispatch.diagnosis import summary
    from npu_dispatch.inductor import report

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
        json_file.parent.mkdir(parents=True, exist_ok=True)
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
    options_metavar="[OPTIONS] SCRIPT | -m MODULE",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write the findings to this file, as JSON.",
)
@click.option(
    "--sarif",
    "sarif_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Also write them to this file, as SARIF, which code hosts show in a diff.",
)
@click.option(
    "--suppressions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A file of findings that are known; by default what "
    "TORCH_NPU_SANITIZER_SUPPRESSIONS names.",
)
@click.option("--raise", "raises", is_flag=True, help="Stop at the first finding.")
@device_names
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

    The exit status is the script's own, or 66 when something was found. --torch-npu
    and --cuda hold for the processes that it starts, too.
    """
    from npu_dispatch import sanitizer
    from npu_dispatch.config import Config

    what, args = what_to_run(module, args)
    register_by_names()
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
    if found:
        click.echo(
            "npu sanitizer: run again after each change. A wait of the host, such as "
            ".item(), orders streams by accident: without it a race can come to light.",
            err=True,
        )
    sys.exit(status or (66 if found else 0))
