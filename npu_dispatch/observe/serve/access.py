"""Which requests are answered, how often, and whether with a compressed answer."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import secrets
import time
from collections import OrderedDict
from collections.abc import Sequence

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from npu_dispatch.observe.serve.families import refuses_gzip
from npu_dispatch.observe.serve.options import check_name, in_url

_NO_TOKEN = "expected the header `Authorization: Bearer TOKEN`"
_BEARER = {"WWW-Authenticate": "Bearer"}
_COOKIE = "npu_dispatch_session"
# Whoever restarts the service judges by it, so it must always get an answer.
_LIVE = "/livez"
_METRICS = "/metrics"
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_EVENTS = "/api/v1/events"
# Whose connections never make room for others: listeners are counted elsewhere.
STAYING = (_LIVE, _EVENTS)
# None of these waits for others' answers.
_ROOM_OF_THEIR_OWN = (*STAYING, _METRICS)


def _path(scope: Scope) -> str:
    """Return the path as this application knows it, which may be mounted."""
    path: str = scope.get("path", "").removeprefix(scope.get("root_path", ""))
    return path


def same(given: str, token: str) -> bool:
    """Compare in constant time, so that the time says nothing about the token."""
    return hmac.compare_digest(given.encode(), token.encode())


def bearer(headers: Headers) -> str:
    """Return the token of the header `Authorization: Bearer TOKEN`, or ""."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


def check_admin(request: Request, token: str | None) -> None:
    """Raise 403 where there is no administration, 401 without the token."""
    if token is None:
        raise HTTPException(403, "read-only: the service runs without --enable-admin")
    if not same(bearer(request.headers), token):
        raise HTTPException(401, _NO_TOKEN, _BEARER)


def guards(
    *,
    hosts: Sequence[str],
    token: str | None,
    admin: str | None = None,
    rate: float,
) -> list[Middleware]:
    """Return what decides, in this order, whether a request is answered.

    `hosts`: names of this machine, besides localhost, that a Host header may have.
    Without a token everybody may read.
    """
    trusted = Middleware(Hosts, allowed=[*_LOOPBACK, *map(in_url, hosts)])
    # Limits come last, so that nobody uses up requests who may not make any.
    limits = Middleware(Limits, rate=rate)
    if token is None:
        return [trusted, limits]
    return [trusted, Middleware(Tokens, token=token, admin=admin), limits]


class Hosts:
    """Answers 400 to who asks for this machine by a name that is not allowed.

    This is against DNS rebinding: another site's page must not read what is here.
    `*.NAME` allows any name below NAME, and `*` any at all.
    """

    def __init__(self, app: ASGIApp, allowed: Sequence[str]) -> None:
        for name in allowed:
            check_name(name)
        self._app, self._allowed = app, [name.lower() for name in allowed]

    def _allows(self, host: str) -> bool:
        return any(
            allowed in ("*", host)
            or (allowed.startswith("*.") and host.endswith(allowed[1:]))
            for allowed in self._allowed
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            host = Headers(scope=scope).get("host", "").lower()
            end = "]" if host.startswith("[") else ":"
            host = host.partition(end)[0] + ("]" if end == "]" else "")
            if not self._allows(host):
                app = PlainTextResponse(
                    f"this service is not called {host!r}; start it with --allow-host "
                    "NAME, or ServiceConfig(hosts=[NAME]), if it is\n",
                    400,
                )
        await app(scope, receive, send)


class Bucket:
    """Holds the requests of one second, or fewer; those taken come back over time."""

    __slots__ = ("_at", "_left", "_most", "_rate")

    def __init__(self, rate: float, seconds: float = 1.0) -> None:
        self._rate, self._most = rate, max(1.0, rate * seconds)
        self._left, self._at = self._most, time.monotonic()

    def takes(self) -> bool:
        """Take one request out; False if there is none."""
        now = time.monotonic()
        self._left = min(self._most, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


def _network(scope: Scope) -> str:
    """Return what of a client's address it cannot choose itself.

    Whoever runs on this machine has all of 127.0.0.0/8, and a client of IPv6 has
    2**64 addresses.
    """
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:  # a Unix socket, or a server that names its clients
        return str(host)
    if address.version == 6:
        address = address.ipv4_mapped or address
    if address.is_loopback:
        return "loopback"
    if address.version == 6:
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return str(address)


class Limits:
    """Answers 429 above a rate per client, 503 where too many are being answered.

    /metrics has a rate of its own, lest a page takes what a scraper needs.
    """

    MOST_AT_ONCE = 128
    MOST_CLIENTS = 1024  # whose rates are known
    # A client in a loop waits for its refusals, too, lest they take a core.
    LATE_SECONDS = 1.0

    def __init__(self, app: ASGIApp, rate: float) -> None:
        self._app, self._rate = app, rate
        self._buckets: OrderedDict[tuple[str, bool], Bucket] = OrderedDict()
        self._busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app, path = self._app, _path(scope)
        if scope["type"] != "http" or path == _LIVE:
            await app(scope, receive, send)
        elif not self._takes(scope, path):
            await asyncio.sleep(self.LATE_SECONDS)
            text = f"more than {self._rate:g} requests per second"
            await _refusal(429, text)(scope, receive, send)
        elif path in _ROOM_OF_THEIR_OWN:
            await app(scope, receive, send)
        elif self._busy >= self.MOST_AT_ONCE:
            text = f"more than {self.MOST_AT_ONCE} requests are being answered"
            await _refusal(503, text)(scope, receive, send)
        else:
            self._busy += 1
            try:
                await app(scope, receive, send)
            finally:
                self._busy -= 1

    def _takes(self, scope: Scope, path: str) -> bool:
        """Take one request out of its client's bucket; False if that is empty."""
        key = _network(scope), path == _METRICS
        bucket = self._buckets.pop(key, None) or Bucket(self._rate)
        self._buckets[key] = bucket  # as the last: the first is the longest unused
        if len(self._buckets) > self.MOST_CLIENTS:
            self._buckets.popitem(last=False)
        return bucket.takes()


def _refusal(status: int, text: str) -> JSONResponse:
    return JSONResponse({"error": text}, status, {"Retry-After": "1"})


class Tokens:
    """Answers 401 to requests with none of the tokens; /livez needs none.

    A browser sends the token for reading as `/?token=TOKEN` and gets a cookie for it,
    which is good for reading and for a time. `admin` may read, too, but is taken from
    the header only: addresses end up in histories and logs.
    """

    MOST_SESSIONS = 256
    SESSION_SECONDS = 12 * 3600.0

    def __init__(self, app: ASGIApp, token: str, admin: str | None) -> None:
        self._app, self._token = app, token
        self._tokens = (token,) if admin is None else (token, admin)
        self._sessions: dict[str, float] = {}  # until when, the oldest first

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and _path(scope) != _LIVE:
            request = Request(scope)
            asked = request.query_params.get("token", "")
            if request.method == "GET" and same(asked, self._token):
                app = _keep(request, self._begin())
            elif not self._may_read(request):
                app = JSONResponse({"error": _NO_TOKEN}, 401, _BEARER)
        await app(scope, receive, send)

    def _may_read(self, request: Request) -> bool:
        if given := bearer(request.headers):
            return any(same(given, token) for token in self._tokens)
        until = self._sessions.get(request.cookies.get(_cookie_name(request), ""), 0.0)
        return time.monotonic() < until

    def _begin(self) -> str:
        """Return the name of a new session. It says nothing about the token.

        A browser sends its cookies to every port of this host.
        """
        if len(self._sessions) >= self.MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = time.monotonic() + self.SESSION_SECONDS
        return session


def _cookie_name(request: Request) -> str:
    """Return a name for this port, as a host's services share a browser's cookies."""
    return f"{_COOKIE}_{request.url.port or ''}".rstrip("_")


def _keep(request: Request, session: str) -> RedirectResponse:
    """Answer with the cookie, and with the same address without the token."""
    rest = request.url.remove_query_params("token").query
    # The path is relative, as a proxy may know this service by another one.
    answer = RedirectResponse(f"?{rest}", 303)
    answer.set_cookie(
        _cookie_name(request),
        session,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return answer


class Compressed(GZipMiddleware):
    """Starlette's, which also compresses for who says `gzip;q=0`: never."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            asked = Headers(scope=scope).get("accept-encoding", "")
            if refuses_gzip(asked):
                return await self.app(scope, receive, send)
        return await super().__call__(scope, receive, send)
