"""Which requests are answered: how many a second, and those with which token."""

from __future__ import annotations

import hmac
import time
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

__all__ = ["Limits", "Tokens", "bearer", "is_live_check", "same"]

_COOKIE = "npu_dispatch_token"


def is_live_check(scope: Scope) -> bool:
    """Return whether a request is /livez, which must always get an answer.

    Whoever restarts the service judges by it.
    """
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path == "/livez"


def same(given: str, token: str) -> bool:
    """Compare in constant time, so that the time says nothing about the token."""
    return hmac.compare_digest(given.encode(), token.encode())


def bearer(headers: Headers) -> str:
    """Return the token of the header `Authorization: Bearer TOKEN`, or ""."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return given.strip() if scheme.lower() == "bearer" else ""


class Limits:
    """Answers 429 above a rate, by a token bucket that holds one second's requests."""

    def __init__(self, app: ASGIApp, rate: float) -> None:
        self._app, self._rate = app, rate
        self._left, self._at = rate, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_live_check(scope):
            now = time.monotonic()
            self._left = min(self._rate, self._left + (now - self._at) * self._rate)
            self._at = now
            if self._left < 1:
                refusal = JSONResponse(
                    {"error": f"more than {self._rate:g} requests per second"},
                    429,
                    {"Retry-After": "1"},
                )
                await refusal(scope, receive, send)
                return
            self._left -= 1
        await self._app(scope, receive, send)


class Tokens:
    """Answers 401 to requests with none of the tokens; /livez needs none.

    A browser sends a token as `/?token=TOKEN` and gets a cookie for it.
    """

    def __init__(self, app: ASGIApp, tokens: tuple[str, ...]) -> None:
        self._app, self._tokens = app, tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http" and self._tokens and not is_live_check(scope):
            request = Request(scope)
            asked = request.query_params.get("token", "")
            if request.method == "GET" and self._knows(asked):
                app = _keep(request, asked)
            elif not self._knows(bearer(request.headers) or _cookie(request)):
                app = JSONResponse(
                    {"error": "expected the header `Authorization: Bearer TOKEN`"},
                    401,
                    {"WWW-Authenticate": "Bearer"},
                )
        await app(scope, receive, send)

    def _knows(self, given: str) -> bool:
        return any(same(given, token) for token in self._tokens)


def _cookie(request: Request) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return found.value if found else ""


def _keep(request: Request, token: str) -> RedirectResponse:
    """Answer with the cookie, and with the same address without the token."""
    rest = [(k, v) for k, v in parse_qsl(request.url.query) if k != "token"]
    # The path is relative, as a proxy may know this service by another one.
    answer = RedirectResponse(f"?{urlencode(rest)}" if rest else "?", 303)
    answer.set_cookie(_COOKIE, token, httponly=True, samesite="strict")
    return answer
