"""What a report says, as tables, which the terminal and the page show alike.

This imports no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import takewhile

from rich.padding import Padding

from npu_dispatch.drawing import Table, console, print_table
from npu_dispatch.plan import spec, topology
from npu_dispatch.plan.advice import (
    advice,
    choice,
    factor_text,
    memory_text,
    time_text,
)
from npu_dispatch.plan.report import Operator, Report

__all__ = ["comparison", "details", "remarks", "show", "show_list"]

_MOST_ROWS = 8


def comparison(reports: Sequence[Report]) -> Table:
    """Return a row for each figure, with a column for each device."""
    figures: dict[str, Callable[[Report], str]] = {
        "predicted time": lambda r: time_text(r.step_us, r.least_us, r.most_us),
        "verdict": lambda r: r.verdict,
        "device works": lambda r: f"{r.device_bound:.0%}",
        "device waits for launches": lambda r: f"{r.launch_bound:.0%}",
        "device waits behind a sync": lambda r: f"{r.sync_bound:.0%}",
        "device waits for other ranks": lambda r: f"{r.network_bound:.0%}",
        "launches": lambda r: f"{r.launches:,.0f}",
        "queue depth median / max": lambda r: (
            f"{r.depth_median:,.0f} / {r.depth_max:,}"
        ),
        "peak memory": lambda r: memory_text(r.peak_allocated, r.memory, r.too_much),
        "kernel times": _origin,
        "steps seen": lambda r: str(r.steps),
        "a step is": lambda r: r.step_is,
    }
    if not any(r.ranks for r in reports):
        del figures["device waits for other ranks"]
    if not any(r.measured or r.interpolated for r in reports):
        del figures["kernel times"]
    return Table(
        "plan",
        ["a step", *(r.device for r in reports)],
        [(name, *map(figure, reports)) for name, figure in figures.items()],
    )


def remarks(report: Report) -> list[str]:
    """Return what is to be known of the figures of all devices, in sentences."""
    graph = report.graph
    if graph is None or graph.step_us is not None:
        return report.notes
    where = f"{graph.where}: " if graph.where else ""
    refused = f"The step cannot be captured into a graph as it is: {where}"
    return [*report.notes, refused + graph.why_not]


def details(report: Report) -> Iterator[Table]:
    """Return the tables of one device."""
    if report.ranks:
        yield Table(
            "ranks",
            ["ranks", "step", "exposed communication", "bound by"],
            [
                (
                    f"{row.ranks:,}",
                    time_text(row.step_us),
                    f"{time_text(row.exposed_us)} ({row.exposed_us / row.step_us:.0%})",
                    row.bound_by,
                )
                for row in report.ranks
            ],
            left=0,
        )
    yield Table(
        "what if",
        ["change", "step", "throughput"],
        [
            (w.what, time_text(w.step_us), factor_text(w.speedup))
            for w in report.what_if
        ],
    )
    if report.blames:
        yield _lines(report)
    # A mark on each of them would tell nothing.
    marks = report.measured + report.interpolated > 0
    by_host = sorted(report.operators, key=lambda row: -row.host_us)
    shown = dict.fromkeys([*report.operators[:_MOST_ROWS], *by_host[:_MOST_ROWS]])
    yield Table(
        "operators",
        ["operator", "calls a step", "device", "host", *["kernel time"] * marks],
        [
            (
                operator.name,
                f"{operator.calls:,.1f}",
                time_text(operator.device_us),
                time_text(operator.host_us),
                *[_origin(operator)] * marks,
            )
            for operator in shown
        ],
    )


def _lines(report: Report) -> Table:
    blames = report.blames[:_MOST_ROWS]
    folder = _folder([blame.where for blame in blames])
    return Table(
        f"lines of {folder}" if folder else "lines",
        ["line", "why", "times a step", "host", "device idle"],
        [
            (
                blame.where.removeprefix(folder),
                blame.reason,
                f"{blame.times:,.1f}",
                time_text(blame.host_us),
                time_text(blame.idle_us),
            )
            for blame in blames
        ],
        left=2,
    )


def _folder(lines: Sequence[str]) -> str:
    """Return the folder that all lines have in common, for it says little."""
    known = [line.partition(" in ")[0] for line in lines if line != "?"]
    parts = zip(*(line.split("/")[:-1] for line in known), strict=False)
    same = takewhile(lambda part: len(set(part)) == 1, parts)
    return "".join(f"{part[0]}/" for part in same)


def _origin(of: Report | Operator) -> str:
    """Return "62% measured, 30% interpolated, 8% modelled"."""
    rest = 1 - of.measured - of.interpolated
    parts = {"measured": of.measured, "interpolated": of.interpolated, "modelled": rest}
    named = [(f"{part:.0%}", name) for name, part in parts.items() if part >= 0.005]
    return ", ".join(" ".join(one) for one in named) if named[1:] else named[0][1]


def show(reports: Sequence[Report]) -> None:
    """Print what to do, one column a device, then each device's details."""
    screen = console()
    screen.print("what to do", style="bold")
    if sentence := choice(reports):
        screen.print(sentence)
    for report in reports:
        sentences = [one.text for one in advice(report)]
        if len(reports) > 1 and sentences:
            screen.print(report.device, style="cyan")
        for number, sentence in enumerate(sentences, 1):
            screen.print(Padding(f"{number}. {sentence}", (0, 0, 0, 2)))
    print_table(screen, comparison(reports))
    for sentence in remarks(reports[0]):
        screen.print(sentence)
    for report in reports:
        for table in details(report):
            print_table(screen, table, f"{report.device}: ")


def show_list() -> None:
    """Print what devices and networks there are, and where figures are from."""
    specs = {name: spec.load(name) for name in spec.built_in()}
    links = {name: topology.load(name) for name in spec.built_in(topology.FOLDER)}
    devices, networks = [], []
    for name, device in specs.items():
        memory, tflops = device.numbers["memory"], device.numbers["tflops"]
        rates = memory["gb_per_s"], tflops["fp16"], tflops["fp32"]
        figures = f"{rates[0]:,.0f}", f"{rates[1]:,.1f}", f"{rates[2]:,.1f}"
        devices.append((name, device.name, f"{memory['gib']:g} GiB", *figures))
    for name, at in links.items():
        inside = f"{1e-9 / at.inside.beta:,.4g}"
        across = at.across and f"{at.links_across} x {1e-9 / at.across.beta:,.4g}"
        networks.append((name, at.name, f"{at.per_host:,}", inside, across or ""))
    screen = console()
    rates_head = ["memory", "GB/s", "fp16\nTFLOP/s", "fp32\nTFLOP/s"]
    print_table(
        screen, Table("specs", ["name", "device", *rates_head], devices, left=2)
    )
    # Beside the devices they would be as wide as two terminals.
    sources = [(name, device.source, device.date) for name, device in specs.items()]
    print_table(screen, Table("sources", ["name", "source", "date"], sources, left=3))
    head = ["name", "what", "ranks of\na host", "GB/s\ninside", "GB/s\nacross"]
    print_table(screen, Table("topologies", head, networks, left=2))
