"""Bugs to plant, each of a kind that has been or may be: the fuzzer must find them."""

from __future__ import annotations

from collections.abc import Callable

BUGS: dict[str, Callable[[], None]] = {}
