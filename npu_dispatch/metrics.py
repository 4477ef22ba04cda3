"""Prometheus metrics of the processes that use the device.

    from npu_dispatch.metrics import start_exporter
    exporter = start_exporter(9400)      # in a training script

The exporter is a process of its own that reads this one's statistics segment,
so a scrape takes none of the trainer's time and no GIL. `npu-dispatch serve`
does the same for all processes of a machine. docs/metrics.md lists the
metrics. Imports neither torch nor the extension.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import Metric
from prometheus_client.registry import Collector

from npu_dispatch.config import for_child, own_python
from npu_dispatch.observe.segment.untrusted_file import Closed
from npu_dispatch.observe.serve.options import (
    ServiceConfig,
    check_name,
    check_token,
    in_url,
    listen,
)
from npu_dispatch.observe.serve.scrapes import Scrapes

if TYPE_CHECKING:
    from starlette.types import ASGIApp

__all__ = ["Exporter", "NpuCollector", "asgi_app", "start_exporter"]

_OPTIONS = "NPU_DISPATCH_SERVE_"


class NpuCollector(Collector):
    """The collector for a registry of your own: `REGISTRY.register(NpuCollector())`.

    It collects from all processes of this user, with the label `process`, or from the
    one `pid`. The metrics are rendered wherever that registry is scraped. A registry
    takes one collector.
    """

    def __init__(self, *, pid: int | None = None) -> None:
        self._scrapes = Scrapes(ServiceConfig(pid=pid))

    def describe(self) -> Iterable[Metric]:
        # Registering must not collect. This name stands for all: a registry refuses a
        # second collector, which would repeat each metric.
        return (Metric("npu_dispatch_exporter_segments", "", "gauge"),)

    def collect(self) -> Iterable[Metric]:
        return self._scrapes.families()


def asgi_app(*, pid: int | None = None) -> ASGIApp:
    """Return an ASGI app that answers every GET with the metrics.

    Mount it in a service that you have: `app.mount("/metrics", asgi_app())`. It shows
    all processes of this user, or the one `pid`; `?name[]=` chooses series, and large
    answers are compressed for clients that can read it. Methods other than GET and
    HEAD get status 405. An answer is given again for a second. Your service says who
    may ask.
    """
    # A collector in a registry of your own needs none of it.
    from starlette.routing import Route, Router

    from npu_dispatch.observe.serve.access import Compressed

    scrapes = Scrapes(ServiceConfig(pid=pid))
    return Compressed(
        Router([Route("/{any:path}", scrapes.response)], redirect_slashes=False)
    )


class Exporter(Closed):
    """A running exporter, which ends with close() or when its trainer ends."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self._process, self._owner = process, os.getpid()
        self.host, self.port = host, port

    @property
    def url(self) -> str:
        return f"http://{in_url(self.host)}:{self.port}/metrics"

    def close(self) -> None:
        """Stop it. A second call does nothing, and neither does a forked child's."""
        if os.getpid() != self._owner:
            return
        if self._process.stdout:
            self._process.stdout.close()
        self._process.terminate()
        self._process.wait()


def start_exporter(
    port: int = 9400,
    host: str = "127.0.0.1",
    *,
    allow_hosts: Sequence[str] = (),
    token: str | None = None,
) -> Exporter:
    """Serve this process's metrics and page on `port` (0: any free one), from a helper.

    `host` is an IPv4 or IPv6 address, or a name. Clients must call the exporter by
    it, by localhost or by one of `allow_hosts`, where "*" stands for any name. With a
    token they need the header `Authorization: Bearer TOKEN`. Raises OSError when the
    port cannot be had, ValueError for what is no name or a token that is too short.
    The helper holds no device, and ends with this process, however that ends; Ctrl-C
    does not reach it.
    """
    if isinstance(allow_hosts, str):
        raise TypeError(
            f"allow_hosts: expected a list of names, found the text {allow_hosts!r}; "
            f"write [{allow_hosts!r}]"
        )
    for name in allow_hosts:
        check_name(name)
    # What the environment asks of a service of the user's is not asked of this one.
    environment = {k: v for k, v in for_child().items() if not k.startswith(_OPTIONS)}
    if token is not None:  # not as an option, which every user of the machine can read
        environment[f"{_OPTIONS}TOKEN"] = check_token(token)
    try:
        listener = listen(host, port)
    except OSError as error:
        raise OSError(error.errno, f"no exporter on {host}:{port}: {error}") from None
    with listener:
        allowed = [word for name in allow_hosts for word in ("--allow-host", name)]
        process = subprocess.Popen(
            [
                *own_python("-m", "npu_dispatch", "serve", "--host", host),
                *("--fd", str(listener.fileno()), str(os.getpid())),
                *allowed,
            ],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=[listener.fileno()],
            text=True,
            start_new_session=True,  # Ctrl-C is for the trainer
        )
        exporter = Exporter(process, host, listener.getsockname()[1])
    assert process.stdout is not None
    if not process.stdout.readline():  # the address, once it serves
        exporter.close()
        raise OSError(f"no exporter on {host}:{port}: its process ended at once")
    return exporter
