"""What became of the functions given to torch.compile, line by line.

Dynamo notes what it compiled and where its graphs end; npu_dispatch.inductor.report
notes what runs eagerly instead.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from npu_dispatch.drawing import Table, console, print_table
from npu_dispatch.inductor import report
from npu_dispatch.inductor.report import NOWHERE, Place
from npu_dispatch.words import short

_RESUMED = re.compile(r"torch_dynamo_resume_in_(\w+)_at_\d+")
_KINDS = ("compiled", "broke", "fell back", "failed")


class Row(NamedTuple):
    """What one line became.

    `became` is "compiled" (a function, at its first line), "broke" (a graph ends and
    Python goes on), "fell back" (eager code runs instead) or "failed" (the compile
    raised). `times` counts compiles or calls. `about` says what or why.
    """

    at: str
    became: str
    times: int
    about: str


def rows() -> list[Row]:
    """Return what became of each line since `start`, or since torch._dynamo.reset."""
    found: dict[tuple[Place, int, str], tuple[int, str]] = {}
    for place, became, times, about in [*_compiles(), *_breaks(), *_noted()]:
        # What is told of a compile grows with each.
        key = place, _KINDS.index(became), "" if became == "compiled" else about
        before, _ = found.get(key, (0, ""))
        found[key] = before + times, about
    return [
        Row(_text(place), _KINDS[kind], *of)
        for (place, kind, _), of in sorted(found.items())
    ]


def show(rows: Sequence[Row]) -> None:
    """Print rows as a table to stderr."""
    screen = console(stderr=True)
    if not rows:
        screen.print("torch.compile: no call of a compiled function")
        return
    head = ("line", "became", "times", "what, or why")
    told = [(short(row.at), row.became, f"{row.times:,}", row.about) for row in rows]
    print_table(screen, Table("torch.compile", head, told, left=len(head)))


def _text(place: Place) -> str:
    file, line, name = place
    return f"{file}:{line} in {name}" if file else "an unknown line"


def _first(text: str) -> str:
    """Return the first sentence of what Dynamo explains, or of all it says."""
    lines = text.strip().splitlines() or [""]
    told = [line for line in lines if line.lstrip().startswith("Explanation: ")]
    sentence = told[0].partition("Explanation: ")[2] if told else lines[0]
    return sentence.partition(". ")[0].rstrip(".")


def _compiles() -> Iterator[tuple[Place, str, int, str]]:
    from torch._dynamo.utils import get_compilation_metrics

    places: dict[str, Place] = {}
    seconds: dict[Place, float] = {}
    for one in get_compilation_metrics():
        # Frame and number of compile. Of backward, and over the limit, Dynamo notes
        # nothing else.
        frame = (one.compile_id or "").rpartition("/")[0]
        if one.co_filename:
            name = _RESUMED.sub(r"\1", one.co_name or "")
            places[frame] = one.co_filename, one.co_firstlineno or 0, name
        place = places.get(frame, NOWHERE)
        again = (one.recompile_reason or "").partition(": ")[2]
        again = again.partition("  #")[0].partition("\n")[0].strip()
        because = f"; again because {again}" if again else ""
        if one.fail_type:
            why = _first(one.fail_reason or one.fail_type)
            limit = "recompile limit" in (one.fail_reason or "")
            eager = limit or one.config_suppress_errors
            yield place, "fell back" if eager else "failed", 1, why + because
        elif one.co_filename and one.graph_op_count:
            took = one.entire_frame_compile_time_s or 0
            seconds[place] = seconds.get(place, 0) + took
            operators = f"{one.graph_op_count} operator{'s'[: one.graph_op_count != 1]}"
            about = f"{operators}, {seconds[place]:.1f} s{because}"
            yield place, "compiled", 1, about
        if one.cudagraph_skip_reason:
            yield (
                place,
                "fell back",
                1,
                f"no graph: {_first(one.cudagraph_skip_reason)}",
            )


def _breaks() -> Iterator[tuple[Place, str, int, str]]:
    from torch._dynamo.utils import graph_break_reasons

    for one in graph_break_reasons:
        stack = [(at.filename, at.lineno or 0, at.name) for at in one.user_stack]
        yield report.users_place(stack), "broke", 1, _first(one.reason)


def _noted() -> Iterator[tuple[Place, str, int, str]]:
    for (place, became, about), times in (report.notes or Counter()).items():
        yield place, became, times, about
