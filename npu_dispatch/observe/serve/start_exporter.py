"""The service for one process, started by that process: `npu-dispatch serve PID`."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from typing import Self

from npu_dispatch.config import for_child, own_python
from npu_dispatch.observe.serve.options import check_name, check_token, in_url, listen

_OPTIONS = "NPU_DISPATCH_SERVE_"


class Exporter:
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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


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
                *own_python("-m", "npu_dispatch.observe.serve", "--host", host),
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
