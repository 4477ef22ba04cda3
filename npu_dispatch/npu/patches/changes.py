"""How a change of torch is written down and made."""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])

_log = logging.getLogger(__name__)
_changes: dict[str, Callable[[], None]] = {}
_missing: dict[str, Exception] = {}


def change(function: Callable[[], None]) -> Callable[[], None]:
    """Decorate a function that changes torch when apply() calls it."""
    _changes[function.__name__] = function
    return function


def replace(function: Callable[..., Any], *places: str) -> None:
    """Let `function` be called in place of functions of torch.

    Its first argument is the function that it replaces, the others are the call's.
    Each place is "module:name" or "module:class.name".
    """
    for place in places:
        module, _, path = place.partition(":")
        *owners, name = path.split(".")
        owner: Any = importlib.import_module(module)
        owner = functools.reduce(getattr, owners, owner)
        setattr(owner, name, _around(getattr(owner, name), function))


def _around(replaced: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(replaced)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(replaced, *args, **kwargs)

    return call


def replaces(*places: str) -> Callable[[F], F]:
    """Decorate what apply() is to let replace() functions of torch."""

    def decorate(function: F) -> F:
        _changes[function.__name__] = functools.partial(replace, function, *places)
        return function

    return decorate


def apply() -> None:
    """Make all changes; to be called once, when torch knows the device.

    They need private names of torch. Where a version of torch lacks one, that costs
    the change and a warning, and not the device.
    """
    for name, make in _changes.items():
        try:
            make()
        except (AttributeError, ImportError, KeyError, TypeError) as error:
            _missing[name] = error
            _log.warning("this torch is not changed by %s: %s", name, error)


def missing() -> dict[str, Exception]:
    """Return which changes could not be made, by name, with the reason."""
    return dict(_missing)
