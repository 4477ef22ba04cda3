"""`npu-dispatch serve` and `npu-dispatch export`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from npu_dispatch.observe.serve.options import check_name, check_token

# What `export` prints, and the file that it is in.
_FILES = {
    "alerts": "alerts.yml",
    "container": "Containerfile",
    "dashboards": "",
    "kubernetes": "kubernetes.yml",
    "scrape-config": "scrape-config.yml",
    "systemd": "npu-dispatch.service",
}


def _read_file(context: click.Context, _: click.Parameter, path: Path | None) -> None:
    if path is None:
        return
    import tomllib

    try:
        found = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise click.BadParameter(f"{path}: {error}") from None
    given = {name.replace("-", "_"): value for name, value in found.items()}
    known = {p.name for p in context.command.params} - {"config", None}
    if unknown := sorted(given.keys() - known):
        raise click.BadParameter(
            f"{path}: unknown {', '.join(unknown)}; expected some of "
            f"{', '.join(sorted(filter(None, known)))}"
        )
    context.default_map = given


def _check_names(
    _: click.Context, __: click.Parameter, names: tuple[str, ...]
) -> tuple[str, ...]:
    for name in names:
        try:
            check_name(name)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    return names


@click.command(context_settings={"auto_envvar_prefix": "NPU_DISPATCH_SERVE"})
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    is_eager=True,
    expose_value=False,
    callback=_read_file,
    help="TOML file with these options; flags and NPU_DISPATCH_SERVE_* override it.",
)
@click.option(
    "--host",
    metavar="ADDRESS",
    default="127.0.0.1",
    help="Address to listen on.",
)
@click.option(
    "--port",
    default=9401,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0: any free port, which is printed.",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    callback=_check_names,
    help="Accept requests for this host name, besides localhost and --host. *.NAME "
    "matches subdomains, * any name. May be repeated.",
)
@click.option(
    "--interval",
    default=1.0,
    type=click.FloatRange(min=0.05, max=60),
    help="Seconds between two readings.",
)
@click.option(
    "--hang-seconds",
    default=10.0,
    type=click.FloatRange(min=0, min_open=True),
    help="Seconds without progress after which a process counts as hung.",
)
@click.option(
    "--max-clients",
    default=64,
    type=click.IntRange(1, 512),
    help="Maximum number of clients of the live event stream.",
)
@click.option(
    "--max-rate",
    default=200.0,
    type=click.FloatRange(min=1),
    help="Maximum number of requests per second from one client address.",
)
@click.option(
    "--unix",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Listen on a Unix socket that only this user can open, instead of an address: "
    "every user of the machine can connect to 127.0.0.1.",
)
@click.option(
    "--token",
    metavar="TOKEN",
    help="Require `Authorization: Bearer TOKEN`, or /?token=TOKEN in a browser. "
    "Prefer the variable NPU_DISPATCH_SERVE_TOKEN.",
)
@click.option(
    "--fd",
    type=int,
    hidden=True,
    help="Listen on this descriptor, which the process PID has opened, until that "
    "process ends: what start_exporter() asks for.",
)
@click.option(
    "--all-users",
    is_flag=True,
    help="Watch processes of all users: as root, or those whose "
    "NPU_DISPATCH_SEGMENT_GROUP is a group of yours.",
)
@click.option(
    "--per-stream",
    is_flag=True,
    help="Label histograms by stream instead of by device.",
)
@click.option(
    "--ops",
    default=0,
    metavar="N",
    type=click.IntRange(0, 100),
    help="Add metrics for the N costliest operators.",
)
@click.option(
    "--enable-admin",
    is_flag=True,
    help="Allow POST /api/v1/admin/..., which changes processes, with the admin token.",
)
@click.option(
    "--admin-token",
    metavar="TOKEN",
    help="The admin token; default: a new one, printed to stderr. Prefer the variable "
    "NPU_DISPATCH_SERVE_ADMIN_TOKEN, as others can read a command line.",
)
@click.argument("pid", type=int, required=False, envvar="NPU_DISPATCH_SERVE_PID")
def serve(
    host: str,
    port: int,
    allow_host: tuple[str, ...],
    unix: Path | None,
    token: str | None,
    fd: int | None,
    enable_admin: bool,
    admin_token: str | None,
    **settings: Any,
) -> None:
    """Watch all local processes: a live page, /metrics and a JSON API.

    With PID, watch only that process. Read-only unless --enable-admin is given. Each
    option can also be set by a variable such as NPU_DISPATCH_SERVE_PORT.
    """
    from npu_dispatch.observe.serve.app import ServiceConfig
    from npu_dispatch.observe.serve.server import run

    if token is not None and token == admin_token:
        raise click.ClickException(
            "--token and --admin-token are equal: the first one may be in addresses "
            "and only reads; choose two"
        )
    config = ServiceConfig(
        hosts=(host, *allow_host),
        admin_token=_token(admin_token) if enable_admin else None,
        token=None if token is None else _token(token),
        **settings,
    )
    try:
        run(config, host, port, unix, fd)
    except OSError as error:
        where = f"{host}:{port}" if unix is None else unix
        raise click.ClickException(f"{where}: {error}") from None


def _token(given: str | None) -> str:
    if given is None:
        import secrets

        given = secrets.token_urlsafe()
        click.echo(f"token of /api/v1/admin: {given}", err=True)
    try:
        return check_token(given)
    except ValueError as error:
        raise click.ClickException(str(error)) from None


@click.command()
@click.option(
    "--docs-url",
    metavar="URL",
    default="docs",
    help="URL of this documentation, to which alerts link.",
)
@click.argument("what", type=click.Choice(sorted(_FILES)))
def export(what: str, docs_url: str) -> None:
    """Print a deployment file: alerts, dashboard, systemd unit, Kubernetes.

    alerts and scrape-config are for Prometheus, dashboards for Grafana. systemd,
    container and kubernetes run `npu-dispatch serve --all-users`, one per machine.
    """
    text = _read(what)
    if what == "kubernetes":
        import textwrap

        text += textwrap.indent(_read("alerts"), "  ")  # below its last `spec:`
    command = Path(sys.executable).with_name("npu-dispatch")
    text = text.replace("ExecStart=COMMAND", f"ExecStart={command}")
    click.echo(text.replace("DOCS/", f"{docs_url.rstrip('/')}/"), nl=False)


def _read(what: str) -> str:
    if what == "dashboards":
        from npu_dispatch.observe.serve.dashboard import dashboard

        return dashboard()
    return (Path(__file__).parent / "deploy" / _FILES[what]).read_text()
