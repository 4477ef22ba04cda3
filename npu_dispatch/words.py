"""What streams, scripts, lines of Python and figures are called, where one is shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

# Options of Python and of `npu-dispatch run` that take the next word.
_TAKING = {"-W", "-X", "-Q", "--check-hash-based-pycs"}
_TAKING |= {"-o", "--out", "--sarif", "--suppressions"}
_RUNNERS = {"run", "sanitize"}
_SPAWNED = "from multiprocessing."


def stream_name(device: int, stream: int) -> str:
    """Return the name in JSON and in addresses: "0:3"."""
    return f"{device}:{stream}"


def stream_title(device: int, stream: int) -> str:
    """Return the name in texts for people: "npu:0 stream 3"."""
    return f"npu:{device} stream {stream}"


def short(line: str) -> str:
    """Return "train.py:12 in step" of "/long/way/train.py:12 in step"."""
    place, of, function = line.partition(" in ")
    return place.rpartition("/")[2] + of + function


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


def counted(number: float, thing: str) -> str:
    """Return "1 wait", "2,000 waits" or "3 processes"."""
    plural = f"{thing}es" if thing.endswith("s") else f"{thing}s"
    return f"{number:,.0f} {thing if round(number) == 1 else plural}"


def age(seconds: float) -> str:
    """Return how long something has lasted: "12 s"."""
    return f"{max(0.0, seconds):,.0f} s"


def duration(seconds: float) -> str:
    """Return what something took: "0.76 ms" or "1.10 s"."""
    return f"{seconds:,.2f} s" if seconds >= 1 else f"{seconds * 1e3:,.2f} ms"


def mib(size: int) -> str:
    """Return a number of bytes as "8.2 MiB"."""
    return f"{size / 2**20:,.1f} MiB"


def table(columns: Mapping[str, str], rows: Iterable[Mapping[str, object]]) -> str:
    """Return aligned text; `columns` are formats of a row's values by their heads.

    The last column is not padded. Other processes' words cannot break lines, nor tell
    the terminal anything.
    """
    cells = [list(columns)]
    cells += [[_plain(f.format_map(row)) for f in columns.values()] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = (
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in cells
    )
    return "\n".join(lines)


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
