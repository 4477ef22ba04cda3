"""`npu-dispatch ps`, `dump`, `top` and others that look at processes from outside.

Each command imports what it needs, so `--help` and the shell's completion load
none of it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npu_dispatch.cli.options import AS_JSON, OUTPUT_FILE
from npu_dispatch.config import seconds_of

if TYPE_CHECKING:
    from npu_dispatch.observe.trace.tracks import Process

_PS_SECONDS = 0.25
_NO_RANK = "no process here is in a group of ranks"
_EVERYBODY = click.option(
    "--all",
    "everybody",
    is_flag=True,
    help="Include processes that have launched nothing.",
)


@click.command()
@AS_JSON
@_EVERYBODY
@click.option(
    "--all-users",
    is_flag=True,
    help="Include processes of other users, where their files can be read.",
)
def ps(as_json: bool, everybody: bool, all_users: bool) -> None:
    """List the processes that use npu, most urgent first."""
    from npu_dispatch.observe.judge.top import Sampler

    sampler = Sampler(everybody=everybody, all_users=all_users)
    sampler.sample()  # the first of two, since a verdict is about what happens now
    time.sleep(_PS_SECONDS)
    sample = sampler.sample()
    as_text = json.dumps(sample.processes, indent=2) if as_json else ""
    click.echo(as_text or sample.process_table(users=all_users))


@click.command()
@click.option(
    "--all-ranks", is_flag=True, help="Compare the collective calls of all ranks."
)
@click.option(
    "--save",
    metavar="PREFIX",
    help="Also write the dump of each rank R to the file PREFIXR.",
)
@click.argument("what", nargs=-1, metavar="PID | --all-ranks [FILES]...")
def dump(what: tuple[str, ...], all_ranks: bool, save: str | None) -> None:
    """Print what each stream and host thread of PID is doing, even if it hangs.

    With --all-ranks, print which rank waits in which collective, and which rank has
    not called it. The ranks are those of this machine, or those whose dumps are in
    the files and folders given, which --save and the watchdog write.
    """
    if all_ranks or save:
        return _dump_ranks([Path(one) for one in what], save)
    from npu_dispatch.observe.judge.describe import dead, dump_lines
    from npu_dispatch.observe.segment.listing import Processes

    if not what:
        raise click.UsageError("Missing argument 'PID', or --all-ranks.")
    if len(what) != 1 or not what[0].isdecimal():
        raise click.UsageError(
            f"expected the number of one process, found {' '.join(what)!r}; "
            "npu-dispatch ps lists them"
        )
    pid = int(what[0])
    # Of any user: the folders of those whom this one may not read are left out.
    with Processes(pid=pid, all_users=True) as processes:
        views = processes.refresh()
    if not views and dead(pid):
        raise click.ClickException(
            f"process {pid} was killed; npu-dispatch postmortem {pid} shows what it "
            "was doing"
        )
    if not views:
        raise click.ClickException(
            f"no process {pid} uses npu here; npu-dispatch ps --all --all-users lists "
            "those that do"
        )
    return click.echo("\n".join(dump_lines(views[0])))


@click.command()
@click.option(
    "--list",
    "only_list",
    is_flag=True,
    help="List killed processes, with time and line of death.",
)
@click.option(
    "--tasks",
    default=8,
    type=click.IntRange(min=1),
    help="Number of tasks to show per stream.",
)
@click.argument("pid", type=int, required=False)
def postmortem(pid: int | None, only_list: bool, tasks: int) -> None:
    """Print what a killed process was doing: PID, or the last one.

    Shows the last tasks and the lines that launched them, the host waits and the
    memory. The data of a killed process is kept for an hour after it is found dead.
    """
    from npu_dispatch.observe.judge.describe import dead, postmortem_lines
    from npu_dispatch.observe.segment import StatsReader, folders

    shown = 0
    for path in dead(pid):
        # It may have been removed meanwhile.
        with contextlib.suppress(FileNotFoundError), StatsReader(path) as reader:
            if only_list or not shown:
                lines = list(postmortem_lines(reader, tasks))
                click.echo("\n".join(lines[:1] if only_list else lines))
                shown += 1
    if not shown:
        who = "of any process" if pid is None else f"for process {pid}"
        raise click.ClickException(
            f"No crash record {who}: it exited normally, is still running (use "
            f"npu-dispatch dump), or {folders.KEPT_SEGMENTS} others were killed since."
        )


def _dump_ranks(paths: list[Path], prefix: str | None) -> None:
    from npu_dispatch.observe.judge import flight_recorder as recorder, rank_verdict

    try:
        dumps = recorder.from_files(paths) if paths else recorder.from_segments()
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error
    if not dumps:
        raise click.ClickException(_NO_RANK)
    for one in dumps if prefix else ():
        recorder.save(one, str(prefix))
    click.echo("\n".join(rank_verdict.report(dumps)))


@click.command()
@click.argument("pids", nargs=-1, type=int)
@click.option("--once", is_flag=True, help="Print the tables once and exit.")
@AS_JSON
@_EVERYBODY
@click.option(
    "--interval",
    default=1.0,
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
    """Watch queues, rates and latencies of PIDS (default: all processes).

    In a terminal the tables are live until Ctrl-C; elsewhere they are printed once.
    """
    from npu_dispatch.observe.judge.top import Sampler, live

    sampler = Sampler(list(pids), everybody=everybody)
    if not (once or as_json) and sys.stdout.isatty():
        return live(sampler, interval)
    sampler.sample()  # the first of two, since rates are differences
    time.sleep(interval)
    sample = sampler.sample()
    text = json.dumps(sample._asdict(), indent=2) if as_json else sample.text()
    return click.echo(text)


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    found = seconds_of(value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a time such as 500ms, 5s or 2m")
    return found


@click.command(context_settings={"ignore_unknown_options": True})
@click.option(
    "--last",
    default="5s",
    callback=_seconds,
    metavar="TIME",
    help="Time to record of PID, such as 500ms, 5s or 2m.",
)
@click.option(
    "-o",
    "--out",
    default="npu.pftrace",
    type=OUTPUT_FILE,
    help="Output file: NAME.json for chrome://tracing, else for ui.perfetto.dev.",
)
@click.option(
    "--all-ranks",
    is_flag=True,
    help="Record all ranks of this machine, or merge the given files and folders.",
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
        click.echo("no process of the command used npu; nothing was written", err=True)
        sys.exit(status or 1)
    for line in tracing.save(processes, out):
        click.echo(line, err=not all_ranks)  # what a command prints stays apart
    sys.exit(status)


def _ranks_traced(saved: list[Path], seconds: float) -> list[Process]:
    from npu_dispatch.observe.judge.flight_recorder import from_segments
    from npu_dispatch.observe.trace.chrome import load
    from npu_dispatch.observe.trace.trace import of_processes

    if saved:
        return load(saved)
    # The id of another container's process is no number.
    ids = [dump["process"]["id"] for dump in from_segments()]
    pids = [int(one) for one in ids if one.isdecimal()]
    if not pids:
        raise click.ClickException(_NO_RANK)
    return of_processes(pids, seconds)
