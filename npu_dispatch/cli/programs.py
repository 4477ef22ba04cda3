"""`npu-dispatch run` and `sanitize`: a program, and what is said after it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from npu_dispatch.cli import options
from npu_dispatch.config import Config, for_child, users_python
from npu_dispatch.program import AFTER_DASHES, Runner, run_program, what_to_run

if TYPE_CHECKING:
    import torch

    from npu_dispatch.observe.judge.summary import Steps
    from npu_dispatch.sanitizer import Process


@click.command(cls=Runner, options_metavar=options.PROGRAM)
@options.json_options
@click.option("--quiet", is_flag=True, help="Do not print the summary.")
@click.option(
    "--compiled",
    is_flag=True,
    help="Also report, line by line, what torch.compile compiled. Inductor's graph "
    "cache is off.",
)
@options.program_options
def run(
    as_json: bool,
    out: Path | None,
    quiet: bool,
    compiled: bool,
    module: bool,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT with the device loaded and print a summary to stderr.

    The summary shows what limits the program, how long a step takes, the lines that
    wait and launch most, and what to try next. JSON has the same figures.

    The exit status is the script's own. --torch-npu and --cuda also apply to child
    processes.
    """
    from npu_dispatch.cli import compiled as lines
    from npu_dispatch.inductor import report
    from npu_dispatch.observe.judge import summary

    what, args = what_to_run(module, args)
    options.register_by_names()
    if compiled:
        report.start()
    started = summary.Watch()
    _count_steps(started.steps)
    status = run_program(what, args)
    left = _finish_work()
    status = status or left
    figures = started.figures()
    rows = lines.rows() if compiled else []
    told = [row._asdict() for row in rows]
    found = {**(figures or {}), "compiled": told} if compiled else figures
    options.give_json(json.dumps(found, indent=2), as_json, out)
    if not quiet:
        summary.show(figures)
        if not (figures and figures["launches"]):
            _say_what_stays_on_cpu()
    if compiled:
        lines.show(rows)
    sys.exit(status)


# They look for torch_npu, and take the cpu without a word where it is not there.
_LOOK_FOR_TORCH_NPU = ("transformers", "accelerate", "deepspeed")


def _say_what_stays_on_cpu() -> None:
    loaded = [name for name in _LOOK_FOR_TORCH_NPU if name in sys.modules]
    if loaded and "torch_npu" not in sys.modules:
        click.echo(
            f"npu: {' and '.join(loaded)} found no npu and the program launched "
            "nothing on it; with --torch-npu they find it (docs/tested_with.md)",
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
    from npu_dispatch.npu.runtime.start import finish_or_drop

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


@click.command(cls=Runner, options_metavar=f"{options.PROGRAM} | -- COMMAND")
@options.json_options
@click.option(
    "--sarif",
    "sarif_file",
    type=options.OUTPUT_FILE,
    help="Write the findings to FILE as SARIF, for code review tools.",
)
@click.option(
    "--suppressions",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with findings to ignore; default: TORCH_NPU_SANITIZER_SUPPRESSIONS.",
)
@click.option("--raise", "raises", is_flag=True, help="Stop at the first finding.")
@options.program_options
@click.pass_context
def sanitize(
    context: click.Context,
    as_json: bool,
    out: Path | None,
    sarif_file: Path | None,
    suppressions: Path | None,
    raises: bool,
    module: bool,
    args: tuple[str, ...],
) -> None:
    """Run SCRIPT and report races between streams, and with the host.

    Child processes are checked, too. The exit status is the script's own; if that is
    0, it is 66 if there are findings, if a process was killed or still runs, or if no
    process used npu. --torch-npu and --cuda also apply to child processes.
    """
    from npu_dispatch import sanitizer

    command = _command(context, module, args)
    known = suppressions or Config.read().sanitizer_suppressions
    try:
        if known is not None:
            sanitizer.Suppressions.read(known)
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error), param_hint="--suppressions") from None
    changes = {"TORCH_NPU_SANITIZER": "raise" if raises else "report"}
    if known is not None:
        changes["TORCH_NPU_SANITIZER_SUPPRESSIONS"] = str(Path(known).absolute())
    try:
        status, processes = _run_sanitized(command, changes)
    except OSError as error:
        raise click.ClickException(str(error)) from None
    found = [report for process in processes for report in process.reports]
    options.give_json(sanitizer.to_json(found), as_json, out)
    if sarif_file is not None:
        sarif_file.write_text(sanitizer.to_sarif(found) + "\n")
    for line in _told(processes):
        click.echo(line, err=True)
    clean = processes and not found and all(process.ended for process in processes)
    sys.exit(status or (0 if clean else 66))


def _command(context: click.Context, module: bool, args: tuple[str, ...]) -> list[str]:
    """Return the command to run: a program of any kind behind `--`, else Python."""
    after_dashes = context.meta.get(AFTER_DASHES) and not module
    if after_dashes and args and not args[0].endswith(".py"):
        return list(args)
    what, args = what_to_run(module, args)
    words = [*(["-m"] if module else []), str(what), *args]
    if Config.read().torch_npu_alias:
        # A program that imports torch_npu before torch needs it there from the start.
        words = ["-m", "npu_dispatch", "run", "--quiet", *words]
    return users_python(*words)


def _run_sanitized(
    command: Sequence[str], changes: dict[str, str]
) -> tuple[int, list[Process]]:
    """Run a command; return its exit status, and its processes with their findings.

    The processes that it starts get the sanitizer through their environment.
    """
    from npu_dispatch.sanitizer import read_all

    with tempfile.TemporaryDirectory(prefix="npu_sanitize-") as folder:
        changes |= {
            "TORCH_NPU_SANITIZER_FINDINGS": folder,
            # A process without the device would have no findings.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
            "NPU_AUTOLOAD": "1",
        }
        status = _run(command, for_child(**changes))
        return status, read_all(Path(folder))


def _run(command: Sequence[str], env: dict[str, str]) -> int:
    child = subprocess.Popen(list(command), env=env)

    def pass_on(number: int, _: FrameType | None) -> None:
        child.send_signal(number)

    before = {
        # Ctrl-C is for the child, to which the terminal sends it, too.
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        **{n: signal.signal(n, pass_on) for n in (signal.SIGTERM, signal.SIGHUP)},
    }
    try:
        status = child.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return status if status >= 0 else 128 - status


def _told(processes: Sequence[Process]) -> Iterator[str]:
    """Yield what is to be said of what processes have found."""
    from npu_dispatch.words import counted

    several = len(processes) > 1
    for process in processes:
        if several and process.reports:
            yield f"npu sanitizer: {_name(process)}:"
        for report in process.reports:
            yield report.text()
        if not process.ended:
            yield (
                f"npu sanitizer: {_name(process)} "
                f"{'still runs' if process.lives() else 'did not end by itself'}: "
                f"what it did beyond {counted(len(process.reports), 'finding')} is not "
                "known"
            )
    found = sum(len(process.reports) for process in processes)
    where = f" in {counted(len(processes), 'process')}" if several else ""
    none = "" if processes else "; no process used the device npu"
    yield f"npu sanitizer: {counted(found, 'finding')}{where}{none}"
    if found:
        yield (
            "npu sanitizer: run again after each change. A wait of the host, such as "
            ".item(), orders streams by accident: without it a race can come to light."
        )


def _name(process: Process) -> str:
    from npu_dispatch.words import script_name

    words = ["python", *process.command]
    ranks = {report.rank for report in process.reports} | {process.rank}
    rank = next((one for one in ranks if one is not None), None)
    of_rank = "" if rank is None else f", rank {rank}"
    return f"process {process.pid}{of_rank} ({script_name(words)})"
