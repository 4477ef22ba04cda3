"""An exporter for one process, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from npu_dispatch.own_python import own_python

__all__ = ["SHORTEST_TOKEN", "Exporter", "start_exporter"]

SHORTEST_TOKEN = 16


class Exporter:
    """A running exporter, which ends with close() or when its trainer ends."""

    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self._process, self._owner = process, os.getpid()
        self.host, self.port = host, port

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/metrics"

    def close(self) -> None:
        """Stop it. A second call does nothing, and neither does a forked child's."""
        if os.getpid() != self._owner:
            return
        if self._process.stdin:
            self._process.stdin.close()
        if self._process.stdout:
            self._process.stdout.close()
        # Its input would not end as long as a forked worker has the pipe, too.
        self._process.terminate()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def start_exporter(
    port: int = 9400,
    host: str = "127.0.0.1",
    *,
    allow_hosts: Sequence[str] = (),
    token: str | None = None,
) -> Exporter:
    """Serve this process's metrics on `port` (0: any free one), from a helper.

    `host` is an IPv4 or IPv6 address, or a name. Clients must call the exporter by
    it, by localhost or by one of `allow_hosts`, where "*" stands for any name. With a
    token they need the header `Authorization: Bearer TOKEN`. Raises OSError when the
    port cannot be had. The helper holds no device, and ends with this process,
    however that ends; Ctrl-C does not reach it.
    """
    if isinstance(allow_hosts, str):
        raise TypeError(
            f"allow_hosts: expected a list of names, found the text {allow_hosts!r}; "
            f"write [{allow_hosts!r}]"
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ValueError(
            f"token: expected {SHORTEST_TOKEN} characters or more, found "
            f"{len(token)}; secrets.token_urlsafe() makes one"
        )
    program = own_python("-m", "npu_dispatch.observe.serve.exporter", str(os.getpid()))
    process = subprocess.Popen(
        [*program, host, str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the trainer
    )
    assert process.stdin is not None
    assert process.stdout is not None
    # Not as arguments, which every user of the machine can read.
    asked = {"hosts": [host, *allow_hosts], "token": token}
    with contextlib.suppress(BrokenPipeError):  # its answer says why it ended
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
    answer = process.stdout.readline().strip()
    if answer.isdecimal():
        return Exporter(process, host, int(answer))
    Exporter(process, host, port).close()
    raise OSError(
        f"no exporter on {host}:{port}: {answer or 'its process ended at once'}"
    )
