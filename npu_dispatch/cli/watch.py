"""`npu-dispatch ps`, `dump`, `top` and others that look at processes from outside.

Each command imports what it needs, so `--help` and the shell's completion load
none of it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npu_dispatch.cli.output_file import OUTPUT_FILE

if TYPE_CHECKING:
    from npu_dispatch.observe.trace.tracks import Process

__all__ = ["dump", "postmortem", "ps", "top", "trace"]

_PS_SECONDS = 0.25


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option(
    "--all",
    "everybody",
    is_flag=True,
    help="Include processes that have launched nothing.",
)
def ps(as_json: bool, everybody: bool) -> None:
    """List the processes that use npu, most urgent first."""
    import time

    from npu_dispatch.observe.judge import top as figures

    sampler = figures.Sampler(everybody=everybody)
    sampler.sample()  # the first of two, since a verdict is about what happens now
    time.sleep(_PS_SECONDS)
    if as_json:
        import json

        return click.echo(json.dumps(figures.as_json(sampler)["processes"], indent=2))
    rows = [figures.process_cells(row) for row in sampler.sample()[0]]
    return click.echo(figures.table(figures.PROCESS_HEADS, rows))


@click.command()
@click.option(
    "--all-ranks", is_flag=True, help="Compare the collective calls of all ranks."
)
@click.option(
    "--save", metavar="PREFIX", help="Also write the dump of each rank to PREFIXrank."
)
@click.argument("what", nargs=-1)
def dump(what: tuple[str, ...], all_ranks: bool, save: str | None) -> None:
    """Print what each stream and host thread of PID is doing, even if it hangs.

    With --all-ranks, print which rank waits in which collective, and which rank has
    not called it. The ranks are those of this machine, or those whose dumps are in
    the files and folders named: --save and the watchdog write such files.
    """
    if all_ranks or save:
        return _dump_ranks([Path(one) for one in what], save)
    from npu_dispatch.observe.judge.describe import dump_lines
    from npu_dispatch.observe.segment.listing import Processes

    if not what:
        raise click.UsageError("Missing argument 'PID', or --all-ranks.")
    if len(what) != 1 or not what[0].isdecimal():
        raise click.UsageError(
            f"expected the number of one process, found {' '.join(what)!r}; "
            "npu-dispatch ps lists them"
        )
    # Of any user: the folders of those whom this one may not read are left out.
    with Processes(pid=int(what[0]), all_users=True) as processes:
        views = processes.refresh()
    if not views and _left_by(int(what[0])):
        raise click.ClickException(
            f"process {what[0]} was killed; npu-dispatch postmortem {what[0]} says "
            "what it was doing"
        )
    if not views:
        raise click.ClickException(
            f"no process {what[0]} uses npu here; npu-dispatch ps lists those that do"
        )
    return click.echo("\n".join(dump_lines(views[0])))


@click.command()
@click.option("--list", "only_list", is_flag=True, help="List the killed processes.")
@click.option(
    "--tasks",
    default=8,
    show_default=True,
    type=click.IntRange(min=1),
    help="Number of tasks to show per stream.",
)
@click.argument("pid", type=int, required=False)
def postmortem(pid: int | None, only_list: bool, tasks: int) -> None:
    """Print what a killed process was doing: PID, or the last one.

    Shows the last tasks and the lines that launched them, the host waits and the
    memory. The data of a killed process is kept for an hour after it is found dead.
    """
    from npu_dispatch.observe.judge.postmortem import dead, opened, postmortem_lines

    found = dead() if pid is None else _left_by(pid)
    readers = [reader for path in found if (reader := opened(path))]
    if not readers:
        who = "a process" if pid is None else f"process {pid}"
        raise click.ClickException(
            f"nothing is left of {who} that was killed; one that ends by itself "
            "leaves nothing, and npu-dispatch dump shows one that lives"
        )
    for number, reader in enumerate(readers):
        with reader:
            if only_list or number == 0:
                lines = list(postmortem_lines(reader, tasks))
                click.echo("\n".join(lines[:1] if only_list else lines))


def _left_by(pid: int) -> list[Path]:
    """Return the segments that killed processes of this number have left."""
    from npu_dispatch.observe.judge.postmortem import dead

    return [path for path in dead() if re.split(r"\D", path.name)[0] == str(pid)]


def _dump_ranks(paths: list[Path], prefix: str | None) -> None:
    from npu_dispatch.observe.judge import all_ranks, flight_recorder

    try:
        dumps = all_ranks.from_files(paths) if paths else all_ranks.from_segments()
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not dumps:
        raise click.ClickException("no process here is in a group of ranks")
    for one in dumps if prefix else ():
        flight_recorder.save(one, str(prefix))
    click.echo("\n".join(all_ranks.report(dumps)))


@click.command()
@click.argument("pids", nargs=-1, type=int)
@click.option("--once", is_flag=True, help="Print one plain table and end.")
@click.option("--json", "as_json", is_flag=True, help="Print one sample as JSON.")
@click.option(
    "--all",
    "everybody",
    is_flag=True,
    help="Include processes that have launched nothing.",
)
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="Seconds between two readings.",
)
def top(
    pids: tuple[int, ...],
    once: bool,
    as_json: bool,
    everybody: bool,
    interval: float,
) -> None:
    """Show queues, rates and latencies live, of PIDS or of all processes."""
    import time

    from npu_dispatch.observe.judge import top as figures

    sampler = figures.Sampler(list(pids), everybody=everybody)
    if not (once or as_json or not sys.stdout.isatty()):
        try:
            screen = figures.live_screen(sampler, interval)
        except ModuleNotFoundError as missing:
            raise click.ClickException(
                f"the screen needs {missing.name}: pip install 'npu_dispatch[tui]', "
                "or use --once"
            ) from missing
        return screen.run()
    sampler.sample()  # the first of two, since rates are differences
    time.sleep(interval)
    if as_json:
        import json

        return click.echo(json.dumps(figures.as_json(sampler), indent=2))
    processes, streams = sampler.sample()
    rows = [figures.process_cells(row) for row in processes]
    click.echo(figures.table(figures.PROCESS_HEADS, rows) + "\n")
    rows = [figures.stream_cells(row) for row in streams]
    click.echo(figures.table(figures.STREAM_HEADS, rows))
    if sampler.collectives:
        rows = [figures.collective_cells(row) for row in sampler.collectives]
        click.echo("\n" + figures.table(figures.COLLECTIVE_HEADS, rows))
    return None


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s|m)?", value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not a time such as 500ms, 5s or 2m")
    return float(match[1]) * {"ms": 1e-3, "m": 60.0}.get(match[2], 1.0)


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--last",
    default="5s",
    callback=_seconds,
    metavar="TIME",
    help="Duration to record, of a PID.",
)
@click.option(
    "-o",
    "--out",
    default="npu.pftrace",
    show_default=True,
    type=OUTPUT_FILE,
    help="Output file: NAME.json for chrome://tracing, else for ui.perfetto.dev.",
)
@click.option(
    "--all-ranks",
    is_flag=True,
    help="Record all ranks here, or merge the files and folders named.",
)
@click.argument("target", nargs=-1, type=click.UNPROCESSED)
def trace(last: float, out: Path, all_ranks: bool, target: tuple[str, ...]) -> None:
    """Record a timeline of a running process (PID) or of a command (-- CMD).

    A process started with NPU_TRACE=1 keeps records, so its last seconds are
    written; any other process is recorded from now on. The exit status is the
    command's own, or 1 if none of its processes used npu.

    With --all-ranks, record all ranks on this machine, or merge the timelines of
    several hosts that were saved as NAME.json. All are put on one clock, and arrows
    join the calls of one collective.
    """
    from npu_dispatch.observe.trace import trace as tracing  # needs numpy
    from npu_dispatch.observe.trace.trace_file import TraceError

    if not target and not all_ranks:
        raise click.UsageError("Missing argument 'TARGET...', or --all-ranks.")
    status = 0
    try:
        if all_ranks:
            processes = _ranks_traced([Path(one) for one in target], last)
        elif len(target) == 1 and target[0].isdigit():
            processes = [tracing.of_process(int(target[0]), last)]
        else:
            status, processes = tracing.of_command(target)
    except (TraceError, OSError) as error:
        raise click.ClickException(str(error)) from error
    if not processes:
        click.echo("no process of the command used npu: nothing was written", err=True)
        sys.exit(status or 1)
    for line in tracing.save(processes, out):
        click.echo(line, err=not all_ranks)  # what a command prints stays apart
    sys.exit(status)


def _ranks_traced(saved: list[Path], seconds: float) -> list[Process]:
    from npu_dispatch.observe.judge.all_ranks import from_segments
    from npu_dispatch.observe.trace.saved import load
    from npu_dispatch.observe.trace.trace import of_processes

    if saved:
        return load(saved)
    pids = [dump["pid"] for dump in from_segments()]
    if not pids:
        raise click.ClickException("no process here is in a group of ranks")
    return of_processes(pids, seconds)
