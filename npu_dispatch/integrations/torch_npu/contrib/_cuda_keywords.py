"""Calls by torch.cuda's own names of parameters, where torch.npu's are others."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any


def _renamed(theirs: Any, ours: Any) -> dict[str, str]:
    """Return torch.cuda's parameters of other names, with ours at the same place."""
    try:
        pairs = zip(
            inspect.signature(theirs).parameters.values(),
            inspect.signature(ours).parameters.values(),
            strict=False,
        )
    except (TypeError, ValueError):  # a function in C, which tells no names
        return {}
    by_place = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return {
        a.name: b.name
        for a, b in pairs
        if a.name != b.name and a.kind == b.kind == by_place
    }


def _by_either(theirs: Any, ours: Callable[..., Any]) -> Callable[..., Any]:
    """Return `ours`, or where names differ a function that takes either's."""
    names = _renamed(theirs, ours)
    if not names:
        return ours

    @functools.wraps(ours)
    def call(*args: Any, **kwargs: Any) -> Any:
        return ours(*args, **{names.get(k, k): v for k, v in kwargs.items()})

    theirs_of = {there: here for here, there in names.items()}
    told = inspect.signature(ours)
    call.__signature__ = told.replace(  # type: ignore[attr-defined]
        parameters=[
            p.replace(name=theirs_of.get(p.name, p.name))
            for p in told.parameters.values()
        ]
    )
    return call


def with_names_of(theirs: Any, ours: Any) -> Any:
    """Return what torch.cuda gets for `theirs`: `ours`, called by either's keywords.

    Of a class the methods change in place, so that it stays one class.
    """
    if not inspect.isclass(ours):
        return _by_either(theirs, ours) if callable(ours) else ours
    if inspect.isclass(theirs):
        for name, method in list(vars(theirs).items()):
            own = vars(ours).get(name)
            if inspect.isfunction(method) and inspect.isfunction(own):
                setattr(ours, name, _by_either(method, own))
    return ours
