"""What a service may be asked for: its settings, names of hosts, tokens, addresses."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path

_SHORTEST_TOKEN = 16
_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The settings. `hosts`: names that a Host header may have, besides localhost."""

    hosts: tuple[str, ...] = ()
    interval: float = 1.0  # seconds between readings
    hang_seconds: float = 10.0  # without progress: hung
    max_clients: int = 64  # of /api/v1/events
    max_rate: float = 200.0  # requests per second, of each client
    # For which /metrics gives an answer again; scrapers come less often.
    kept_seconds: float = 1.0
    pid: int | None = None  # only this process
    directory: Path | None = None  # of the segments, where not the usual one
    all_users: bool = False  # show every process whose segment can be read
    ops: int = 0  # metrics by operator, of the costliest so many
    per_stream: bool = False  # histograms of every stream, and what is costly
    admin_token: str | None = None  # None: nothing can be changed from outside
    token: str | None = None  # for reading; None: needs none


def check_name(name: str) -> None:
    """Raise ValueError for what is no name of a host, *.NAME or *."""
    if "*" in name.removeprefix("*.") and name != "*":
        raise ValueError(f"{name!r}: expected a name, *.NAME or *")


def check_token(token: str) -> str:
    """Return the token; raise ValueError if it could be guessed."""
    if len(token) < _SHORTEST_TOKEN:
        raise ValueError(
            f"token: expected {_SHORTEST_TOKEN} characters or more, found "
            f"{len(token)}; secrets.token_urlsafe() makes one"
        )
    return token


def in_url(host: str) -> str:
    """Return a host as in a URL, where IPv6 addresses are in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address or a name; port 0: any free one."""
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)
