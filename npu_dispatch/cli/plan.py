"""`npu-dispatch plan` and `calibrate`: a program on a device of stated speed."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import click

from npu_dispatch.cli import options
from npu_dispatch.config import cache_folder, own_python, variable
from npu_dispatch.program import Runner, what_to_run

if TYPE_CHECKING:
    from npu_dispatch.plan.study import Network

# Of the CPUs: what `calibrate` says nothing about.
_MOST_OF_OTHERS = 0.05
# The device that is measured where it was not.
_HOST = "host"
# Of a job whose network is not named.
_TOPOLOGY = "nvl8+ib400"


def _host_speed(_: click.Context, __: click.Parameter, value: str | None) -> float:
    if value is None:
        return 1.0
    name, _equals, number = value.partition("=")
    try:
        speed = float(number)
    except ValueError:
        speed = 0.0
    if name != "host" or not 0 < speed <= 100:
        raise click.BadParameter(f"{value!r}: expected host=NUMBER, such as host=0.5")
    return speed


def _list_specs(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted:
        from npu_dispatch.plan import show

        show.show_list()
        context.exit()


def _network(ranks: int, name: str) -> Network:
    from npu_dispatch.plan import topology
    from npu_dispatch.plan.spec import SpecError
    from npu_dispatch.plan.study import Network

    try:
        found = topology.load(name)
    except SpecError as error:
        raise click.BadParameter(str(error), param_hint="--topology") from None
    if found.across is None and ranks > found.per_host:
        raise click.BadParameter(
            f"{found.name} is one host of {found.per_host} ranks: found {ranks}; "
            "--topology names one with links across hosts",
            param_hint="--ranks",
        )
    return Network(found, ranks)


def _measured_host() -> str:
    """Return the spec of this machine's CPU. It is measured once for each torch."""
    threads = variable("OMP_NUM_THREADS") or os.cpu_count()
    torch = metadata.version("torch")
    path = cache_folder() / f"{_HOST}-{platform.node()}-{threads}-torch{torch}.toml"
    if not path.is_file():
        click.echo(f"measuring this machine's CPU once, into {path}", err=True)
        command = own_python("-m", "npu_dispatch", "calibrate", str(path))
        if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
            raise click.ClickException("this machine's CPU could not be measured")
    return str(path)


@click.command("plan", cls=Runner, options_metavar=options.PROGRAM)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="SPEC",
    help="Device to plan for: a name from --list, a TOML file, or `host`: this "
    "machine's CPU, which is measured once. May be repeated.",
)
@click.option(
    "--list",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_specs,
    help="List the known devices and topologies, and exit.",
)
@click.option(
    "--scale",
    "host_speed",
    callback=_host_speed,
    metavar="host=NUMBER",
    help="Speed of the host relative to this machine; default: host=1.",
)
@click.option(
    "--steps",
    type=click.IntRange(1),
    help="Steps to analyse; default: at least 10 and 0.8 s of CPU time.",
)
@click.option(
    "--warmup",
    type=click.IntRange(0),
    default=3,
    help="Steps to skip at the start.",
)
@click.option(
    "--kernels",
    "kernels_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Trace of torch.profiler from a real device; its times replace the model's.",
)
@click.option(
    "--ranks",
    type=click.IntRange(1),
    help="Number of ranks to plan for; one is executed.",
)
@click.option(
    "--topology",
    metavar="NAME",
    help="Network of the ranks: a name from --list, or a TOML file; default: "
    f"{_TOPOLOGY}.",
)
@options.json_options
@click.option(
    "--html",
    "html_file",
    type=options.OUTPUT_FILE,
    help="Write the plan to FILE as one self-contained HTML page.",
)
@click.option(
    "--trace",
    "trace_file",
    type=options.OUTPUT_FILE,
    help="Write the first device's timeline to FILE: .json for Chrome, else Perfetto.",
)
@options.program_options
def plan(
    devices: tuple[str, ...],
    host_speed: float,
    steps: int | None,
    warmup: int,
    kernels_file: Path | None,
    ranks: int | None,
    topology: str | None,
    as_json: bool,
    out: Path | None,
    html_file: Path | None,
    trace_file: Path | None,
    module: bool,
    args: tuple[str, ...],
) -> None:
    """Predict how SCRIPT would run on another device.

    Runs some steps of the script without computing, and simulates each device.
    A step ends where the optimizer's does; without an optimizer it is a call of the
    model. See docs/plan.md.
    """
    from npu_dispatch.plan import spec
    from npu_dispatch.plan.record import PlanError, record

    what, rest = what_to_run(module, args)
    try:
        specs = [
            spec.load(_measured_host() if name == _HOST else name)
            for name in devices or ("a100-80gb-sxm",)
        ]
    except spec.SpecError as error:
        raise click.BadParameter(str(error), param_hint="--device") from None
    kernels = None
    if kernels_file is not None:
        from npu_dispatch.plan.kernel_times import KernelTimes, KernelTimesError

        try:
            kernels = KernelTimes.load(kernels_file)
        except KernelTimesError as error:
            raise click.BadParameter(str(error), param_hint="--kernels") from None
    network = None
    if (ranks or 1) > 1 or topology is not None:
        network = _network(ranks or 1, topology or _TOPOLOGY)
    recorded, failure = [], None
    try:
        recorded = record(
            [str(what), *rest],
            specs,
            module=module,
            steps=steps,
            warmup=warmup,
            host_speed=host_speed,
            kernels=kernels,
            network=network,
        )
    except PlanError as error:
        failure = str(error)
    if recorded and not as_json:
        from npu_dispatch.plan import show

        show.show([one.report for one in recorded])
    reports = [asdict(one.report) for one in recorded]
    found = {"host_speed": host_speed, "reports": reports, "failure": failure}
    options.give_json(json.dumps(found, indent=2), as_json, out)
    if failure is not None:
        raise click.ClickException(failure)
    if html_file is not None:
        from npu_dispatch.plan import html_page

        html_page.write([one.report for one in recorded], html_file)
    if trace_file is not None:
        from npu_dispatch.observe.trace import trace
        from npu_dispatch.plan.simulate import timeline_of

        for line in trace.save([timeline_of(recorded[0].run, str(what))], trace_file):
            click.echo(line, err=as_json)


@click.command()
@click.argument("spec", type=options.OUTPUT_FILE)
@click.option(
    "--name",
    default="this machine's cpu",
    help="Name of the device in plans.",
)
def calibrate(spec: Path, name: str) -> None:
    """Measure this machine's CPU (one minute); write SPEC for `plan`."""
    import npu_dispatch

    npu_dispatch.register()
    import psutil

    from npu_dispatch.plan.calibrate import kernels, measure, spec_text

    this = psutil.Process()
    psutil.cpu_percent(), this.cpu_percent()  # both are counted from here
    text = spec_text(name, measure(), [*kernels()])
    own = this.cpu_percent() / psutil.cpu_count()
    others = max(psutil.cpu_percent() - own, 0.0) / 100
    spec.write_text(text)
    click.echo(f"wrote {spec}")
    if others > _MOST_OF_OTHERS:
        click.echo(
            f"Other processes used {others:.0%} of this machine's CPUs meanwhile, so "
            "the spec may be of a slower device: measure again when they are idle.",
            err=True,
        )
