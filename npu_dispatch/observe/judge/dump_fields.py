"""What a flight recorder's file must hold for its readers, field by field.

Another version or another program may have written the file, or it is cut short.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from npu_dispatch.observe.judge.evidence import is_evidence

__all__ = ["check_dump"]

Is = Callable[[Any], bool]


def _kind(*kinds: type) -> Is:
    return lambda value: isinstance(value, kinds)


def _number(value: Any) -> bool:
    # Integers have 64 bits, so that whoever computes with them need not expect others.
    return isinstance(value, int) and abs(value) < 1 << 64


def _list_of(one: Is) -> Is:
    return lambda value: isinstance(value, list | tuple) and all(map(one, value))


def _maybe(one: Is) -> Is:
    return lambda value: value is None or one(value)


def _ranks(value: Any) -> bool:
    try:
        return bool(_list_of(_number)(ast.literal_eval(str(value))))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return False


def _frame(value: Any) -> bool:
    return isinstance(value, dict) and {"filename", "line"} <= value.keys()


_TEXT = _kind(str)
_SIZES = _list_of(_list_of(_number))
_ENTRY: dict[str, Is] = {
    "process_group": lambda v: len(v) > 0 if _list_of(_TEXT)(v) else False,
    "collective_seq_id": _number,
    "is_p2p": _kind(bool),
    "profiling_name": _TEXT,
    "time_created_ns": _number,
    "time_discovered_started_ns": _maybe(_number),
    "input_sizes": _SIZES,
    "input_dtypes": _list_of(_TEXT),
    "output_sizes": _SIZES,
    "output_dtypes": _list_of(_TEXT),
    "state": _TEXT,
}
# These are ours, or not every version of torch has them.
_ENTRY_MAY: dict[str, Is] = {
    "name": _TEXT,
    "token": _TEXT,
    "line": _TEXT,
    "frames": _list_of(_frame),
    "peer": _number,
    "all_here_ns": _maybe(_number),
    "ended_ns": _maybe(_number),
    "stream": _list_of(_number),
}
_CONFIG: dict[str, Is] = {"ranks": _ranks}
_DUMP: dict[str, Is] = {
    "entries": _kind(list, tuple),
    "pg_config": _kind(dict),
    "rank": _number,
}
_DUMP_MAY: dict[str, Is] = {
    "groups": _kind(dict),
    "time_ns": _number,
    "pid": _number,
    "process": is_evidence,
}


def _check(what: str, value: Any, must: dict[str, Is], may: dict[str, Is]) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{what}: expected a dict, found {type(value).__name__}")
    for name, good in (must | may).items():
        if name not in value and name in may:
            continue
        if name not in value or not good(value[name]):
            found = repr(value[name])[:60] if name in value else "nothing"
            raise ValueError(f"{what}: found {found} as its {name!r}")


def check_dump(dump: Any) -> None:
    """Raise a ValueError that names the first field which readers cannot use."""
    _check("the dump", dump, _DUMP, _DUMP_MAY)
    for entry in dump["entries"]:
        _check("a call", entry, _ENTRY, _ENTRY_MAY)
        if entry["is_p2p"] and "peer" in entry and "name" not in entry:
            raise ValueError("a call: found nothing as its 'name'")
    for name, config in dump["pg_config"].items():
        _check("a group", config, _CONFIG, {})
        if not isinstance(name, str):
            raise ValueError(f"a group: found {name!r} as its name")
    for token, group in dump.get("groups", {}).items():
        good = isinstance(token, str) and _list_of(lambda _: True)(group)
        if not (good and len(group) == 2 and _TEXT(group[0]) and _ranks(group[1])):
            raise ValueError(f"a group: found {group!r:.60} as its name and ranks")
