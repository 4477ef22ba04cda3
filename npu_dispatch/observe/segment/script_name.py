"""What people call a process, by the script that it runs, and a line of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from npu_dispatch.observe.segment import SegmentInfo

# Options of Python and of `npu-dispatch run` that take the next word.
_TAKING = {"-W", "-X", "-Q", "--check-hash-based-pycs"}
_TAKING |= {"-o", "--out", "--sarif", "--suppressions"}
_RUNNERS = {"run", "sanitize"}
_SPAWNED = "from multiprocessing."


def short(line: str) -> str:
    """Return "train.py:12 in step" of "/long/way/train.py:12 in step"."""
    place, of, function = line.partition(" in ")
    return place.rpartition("/")[2] + of + function


def name_of(info: SegmentInfo) -> str:
    """Return a process's script, module or command, also of one that is dead."""
    return script_name(info.command)


def script_name(words: Sequence[str]) -> str:
    """Return "train.py" for the command `python -u /long/way/train.py --lr 1`."""
    if not words or not words[0]:
        return ""
    command = Path(words[0]).name
    if command == "npu-dispatch":
        return _of_runner(words[1:]) or command
    if not command.startswith(("python", "pypy")):
        return command
    return _of_python(words[1:]) or command


def _of_python(words: Sequence[str]) -> str:
    """Return what Python is told to run; "" where it reads its input."""
    rest = iter(enumerate(words))
    for place, word in rest:
        if word == "-c":
            code = words[place + 1] if place + 1 < len(words) else ""
            return "multiprocessing" if code.startswith(_SPAWNED) else "python -c"
        if word == "-m":
            module = words[place + 1] if place + 1 < len(words) else ""
            ours = module == "npu_dispatch"
            inner = _of_runner(words[place + 2 :]) if ours else ""
            return inner or f"-m {module}"
        if word in _TAKING:
            next(rest, None)
        elif not word.startswith("-"):
            if Path(word).name == "npu-dispatch":
                return _of_runner(words[place + 1 :]) or "npu-dispatch"
            return Path(word).name
    return ""


def _of_runner(words: Sequence[str]) -> str:
    """Return what `npu-dispatch run` or `sanitize` runs; "" of other commands."""
    if not words or words[0] not in _RUNNERS:
        return ""
    return _of_python(words[1:])
