"""Range markers as torch_npu names them. Nothing here ever raises."""

from __future__ import annotations

import functools
import logging
import warnings
from collections.abc import Callable
from typing import Any, ParamSpec, Self, TypeVar

from npu_dispatch.npu.ranges.marks import Ranges, recorder
from npu_dispatch.npu.streams import Stream

__all__ = ["mstx"]

P = ParamSpec("P")
R = TypeVar("R")

_log = logging.getLogger(__name__)
_ranges = Ranges()


def _bad(message: object, stream: object, domain: object, may_be_empty: bool) -> bool:
    """Warn of what is wrong with the arguments, if anything."""
    what = ""
    if not isinstance(message, str) or not message:
        what = f"message must be a non-empty str, but got {message!r}"
    elif not isinstance(domain, str) or not (domain or may_be_empty):
        what = f"domain must be a non-empty str, but got {domain!r}"
    elif stream is not None and not isinstance(stream, Stream):
        what = f"stream must be a torch.npu.Stream, but got {stream!r}"
    if what:
        warnings.warn(f"mstx: {what}; nothing is marked", stacklevel=4)
    return bool(what)


def _quietly(default: Any) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Log what the function raises and return `default` instead."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                _log.error("mstx.%s: %s", function.__name__, error)
                result: R = default
                return result

        return call

    return decorate


class mstx:
    """Marks and ranges, which `npu-dispatch trace` and torch.npu.profiler show.

    With a stream, the mark is also a task of that stream, which notes when it is
    reached. For bad arguments there is a warning and a default result.
    """

    @staticmethod
    @_quietly(None)
    def mark(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> None:
        """Mark this moment."""
        if not _bad(message, stream, domain, True) and recorder.wanted():
            recorder.point(message, domain, stream)

    @staticmethod
    @_quietly(0)
    def range_start(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> int:
        """Open a range that any thread may end; return its number, 0 if refused."""
        if _bad(message, stream, domain, False):
            return 0
        return _ranges.start(message, domain, stream)

    @staticmethod
    @_quietly(None)
    def range_end(range_id: int, domain: str = "default") -> None:
        """Close the range of that number."""
        try:
            _ranges.finish(range_id, domain)
        except (KeyError, TypeError):
            warnings.warn(
                f"mstx: no open range {range_id!r} in domain {domain!r}", stacklevel=3
            )

    @staticmethod
    @_quietly(-1)
    def range_push(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> int:
        """Open a range within this thread's latest; return its depth, -1 if refused."""
        if _bad(message, stream, domain, False):
            return -1
        return _ranges.push(message, domain, stream)

    @staticmethod
    @_quietly(-1)
    def range_pop(domain: str = "default") -> int:
        """Close this thread's latest range; return its depth, -1 if none."""
        return _ranges.pop(domain)

    @staticmethod
    @_quietly(lambda function: function)
    def mstx_range(
        message: str, stream: Stream | None = None, domain: str = "default"
    ) -> Callable[[Callable[P, R]], Callable[P, R]]:
        """Return a decorator that puts each call of a function in a range."""
        if _bad(message, stream, domain, False):
            return lambda function: function
        return mstx.annotate(message, stream, domain)

    class annotate:
        """A context or decorator for a range, which an exception closes, too.

        Without a message, a decorated function's range has its name.
        """

        def __init__(
            self,
            message: str = "",
            stream: Stream | None = None,
            domain: str = "default",
        ) -> None:
            self.message, self.stream, self.domain = message, stream, domain
            self._open: list[int] = []

        def __enter__(self) -> Self:
            self._open.append(mstx.range_start(self.message, self.stream, self.domain))
            return self

        def __exit__(self, *exc: object) -> None:
            number = self._open.pop()
            if number:
                mstx.range_end(number, self.domain)

        def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
            @functools.wraps(function)
            def call(*args: P.args, **kwargs: P.kwargs) -> R:
                message = self.message or function.__name__
                with mstx.annotate(message, self.stream, self.domain):
                    return function(*args, **kwargs)

            return call
