"""The tables that come from out/bench.json: `make bench-readme` writes them anew.

Between `<!-- figures NAME -->` and `<!-- end -->` in README.md and docs/ stands a
table of tables.toml, or one of WRITTEN; nobody types what is there. Within a
sentence, a median stands between `<!-- figure BENCH CASE FIELD -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _errors import errors

from npu_dispatch.plan.topology import Group, Link

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))
import pages

ROOT = Path(__file__).resolve().parent.parent
# Of which figures are published.
FEWEST_RUNS = 5
# More than this part of the cores, and the page says that the machine was loaded.
MOST_OF_OTHERS = 0.05
IDLE = 0.025  # less than this part: it was idle
# tools/pages.py writes what was tested.
PAGES = (
    "README.md",
    *(
        str(path.relative_to(ROOT))
        for path in sorted(ROOT.glob("docs/**/*.md"))
        if path.name != "tested_with.md"
    ),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A line of a table: words, and the figures that stand beside them."""

    words: str
    bench: str
    cells: tuple[tuple[str, ...], ...]  # (case, field)


def _table(columns: Mapping[str, str], rows: Mapping[str, str]) -> tuple[Any, Any]:
    found = []
    for words, of in rows.items():
        bench, *keys = of.split()
        cells = (tuple(each.format(*keys).split()) for each in columns.values())
        found.append(Row(words, bench, tuple(cells)))
    return tuple(columns), tuple(found)


# name: heads of the columns between the words and the command; rows
TABLES: dict[str, tuple[tuple[str, ...], tuple[Row, ...]]] = {
    name: _table(**parts)
    for name, parts in tomllib.loads(
        Path(__file__).with_name("tables.toml").read_text()
    ).items()
}
FIGURE = re.compile(r"(<!-- figure (\w+) (\w+) (\w+) -->).*?(<!-- end -->)")


def is_met(figure: float, relation: str, bound: float) -> bool:
    return figure <= bound if relation == "<=" else figure >= bound


def number(value: float) -> str:
    """Three digits that matter, and no exponent."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def spread(figure: Mapping[str, float]) -> str:
    """The median, and the range if there is one."""
    least, most = number(figure["least"]), number(figure["most"])
    text = number(figure["median"])
    return text if least == most else f"{text} ({least} to {most})"


def cell(cases: Mapping[str, Any], case: str, field: str) -> str:
    """A figure, or "" where the case has none of that name."""
    figures = cases[case]["figures"]
    return spread(figures[field]) if field in figures else ""


def table(name: str, result: Mapping[str, Any]) -> str:
    """Return a table of TABLES, as Markdown."""
    heads, rows = TABLES[name]
    lines = []
    for row in rows:
        bench = result["benches"][row.bench]
        cells = [cell(bench["cases"], case, field) for case, field in row.cells]
        lines.append([row.words, *cells, f"`{bench['command']}`"])
    text = pages.table(["case", *heads, "command"], lines)
    return text + "\n" + about(result, {row.bench for row in rows})


def about(result: Mapping[str, Any], names: Collection[str] = ()) -> str:
    """What the figures of these benchmarks, or of all, depend on."""
    machine, benches = result["machine"], result["benches"]
    shown = [benches[name] for name in names or benches]
    if not shown:
        return "Nothing has run.\n"
    runs = sorted({bench["runs"] for bench in shown})
    seconds = sum(bench["seconds"] for bench in shown)
    others = sum(bench["others"] * bench["seconds"] for bench in shown) / (seconds or 1)
    loaded = "**On a loaded machine.** " if others > MOST_OF_OTHERS else ""
    beside = f"other programs used {100 * others:.0f} % of the cores"
    if others < IDLE:
        beside = "idle machine"
    return (
        f"{loaded}{machine['cores']} cores of {machine['cpu']}, torch "
        f"{machine['torch']}, {min(bench['began'] for bench in shown)} UTC; {beside}; "
        f"median of {' to '.join(map(str, runs[:: len(runs) - 1 or 1]))} runs "
        "(min to max).\n"
    )


def of_scale(result: Mapping[str, Any]) -> str:
    """Return what an all-reduce takes on more ranks than were run, by algorithm.

    Messages within a host are as fast as those measured. The ranks of a host share one
    link across, whose alpha is that of sockets.
    """

    def link(case: str) -> tuple[float, float]:
        figures = result["benches"]["distributed"]["cases"][case]["figures"]
        alpha, beta = (figures[f]["median"] for f in ("alpha_us", "beta_ns_per_byte"))
        return alpha / 1e6, beta / 1e9

    inside, across = (
        Link(*link("message_linked")),
        Link(link("message_sockets")[0], 8e-9),
    )
    text = "| ranks | bytes | all to all, ms | ring | tree | hierarchical |\n"
    text += "|---|---|---|---|---|---|\n"
    for ranks in (8, 64, 512, 4096):
        shared = {"alone": across, "together": across.shared(8)}
        group = Group(ranks // 8, 8, 8, ranks, inside, **shared)
        passes = (group.direct, group.ring_pass, group.tree_pass, group.hierarchy)
        for words, size in (("4 B", 4), ("1 MB", 1 << 20), ("64 MB", 1 << 26)):
            # An all-reduce is two passes.
            cells = (three_digits(2e3 * one(size).seconds()) for one in passes)
            text += pages.line([ranks, words, *cells])
    return text


def three_digits(ms: float) -> str:
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def of_errors(result: Mapping[str, Any]) -> str:
    return errors(result) + about(result, {"plan"})


# What a benchmark's cases are written by, where they are no rows of TABLES.
WRITTEN: dict[str, tuple[str, Callable[[Mapping[str, Any]], str]]] = {
    "errors": ("plan", of_errors),
    "scale": ("distributed", of_scale),
}


def block(name: str, result: Mapping[str, Any]) -> str:
    return WRITTEN[name][1](result) if name in WRITTEN else table(name, result)


def not_run(name: str, result: Mapping[str, Any]) -> list[str]:
    """Return which benchmarks a block needs and `result` lacks."""
    rows = () if name in WRITTEN else TABLES[name][1]
    needed = {row.bench for row in rows} or {WRITTEN[name][0]}
    return sorted(needed - set(result["benches"]))


def everything(result: Mapping[str, Any]) -> str:
    """Return every case as Markdown, for out/bench.md."""
    text = "# Benchmarks\n\n" + about(result)
    if result["not_run"]:
        text += f"\nNot run: {', '.join(result['not_run'])}.\n"
    for name, bench in result["benches"].items():
        text += f"\n## {name}\n\n`{bench['command']}`, {bench['seconds']} s\n\n"
        lines = []
        for case, found in bench["cases"].items():
            for field, figure in found["figures"].items():
                goal, verdict = "", ""
                if field in found["goals"]:
                    relation, bound = found["goals"][field]
                    goal = f"{relation} {bound:g}"
                    verdict = "falls short" if field in found["short"] else "reached"
                lines.append([case, field, spread(figure), goal, verdict])
        heads = ["case", "figure", "median (range)", "goal", "verdict"]
        text += pages.table(heads, lines)
    return text


def with_figures(text: str, result: Mapping[str, Any]) -> str:
    """Return a page with the medians that its sentences name."""

    def median(found: re.Match[str]) -> str:
        if found[2] not in result["benches"]:
            return found[0]
        figures = result["benches"][found[2]]["cases"][found[3]]["figures"]
        return found[1] + number(figures[found[4]]["median"]) + found[5]

    return FIGURE.sub(median, text)


def published(path: Path) -> dict[str, Any]:
    """Return a result of `make bench`; exit if pages are not to show it."""
    if not path.exists():
        sys.exit(f"there is no {path}: run `make bench`")
    result: dict[str, Any] = json.loads(path.read_text())
    if result["runs"] < FEWEST_RUNS:
        sys.exit(
            f"{path} has {result['runs']} runs of each file, and figures of fewer "
            f"than {FEWEST_RUNS} are not published: run `make bench`"
        )
    return result


def main() -> None:
    """Write the figures of the given pages anew, or of all.

    What needs a benchmark that was not run stays as it was, and is named.
    """
    result = published(ROOT / "out/bench.json")

    def anew(name: str) -> str | None:
        if lacking := not_run(name, result):
            print(f"table {name} stays as it was: not run: {', '.join(lacking)}")
            return None
        return block(name, result)

    for path in sys.argv[1:] or PAGES:
        page = ROOT / path
        text = pages.filled(page.read_text(), anew)
        page.write_text(with_figures(text, result))


if __name__ == "__main__":
    main()
