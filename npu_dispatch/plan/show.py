"""The report on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from npu_dispatch.plan.advice import advice, choice
from npu_dispatch.plan.analysis import Report
from npu_dispatch.plan.texts import factor_text, memory_text, time_text

__all__ = ["remarks", "show"]

_MOST_ROWS = 8


def show(reports: Sequence[Report]) -> None:
    """Print what to do, one column a device, then each device's details."""
    # Names and errors may look like markup: list[int].
    console = Console(markup=False, emoji=False)
    _what_to_do(console, reports)
    table = Table(title="plan", title_style="bold")
    table.add_column("a step", style="cyan")
    for report in reports:
        table.add_column(report.device, justify="right")
    rows = {
        "predicted time": [
            time_text(r.step_us, r.least_us, r.most_us) for r in reports
        ],
        "verdict": [r.verdict for r in reports],
        "device works": [f"{r.device_bound:.0%}" for r in reports],
        "device waits for launches": [f"{r.launch_bound:.0%}" for r in reports],
        "device waits behind a sync": [f"{r.sync_bound:.0%}" for r in reports],
        "device waits for other ranks": [f"{r.network_bound:.0%}" for r in reports],
        "launches": [f"{r.launches:,.0f}" for r in reports],
        "queue depth median / max": [
            f"{r.depth_median:,.0f} / {r.depth_max:,}" for r in reports
        ],
        "peak memory": [
            memory_text(r.peak_allocated, r.memory, r.too_much) for r in reports
        ],
        "steps seen": [str(r.steps) for r in reports],
        "a step is": [r.step_is for r in reports],
    }
    if not any(r.ranks for r in reports):
        del rows["device waits for other ranks"]
    for name, cells in rows.items():
        table.add_row(name, *cells)
    console.print(table)
    for report in reports:
        _details(console, report)


def _what_to_do(console: Console, reports: Sequence[Report]) -> None:
    console.print("what to do", style="bold")
    if sentence := choice(reports):
        console.print(sentence)
    for report in reports:
        sentences = [one.text for one in advice(report)]
        if len(reports) > 1 and sentences:
            console.print(report.device, style="cyan")
        for number, sentence in enumerate(sentences, 1):
            console.print(Padding(f"{number}. {sentence}", (0, 0, 0, 2)))


def remarks(report: Report) -> list[str]:
    """Return what is to be known of the figures, and why there is no graph's."""
    graph = report.graph
    if graph is None or graph.step_us is not None:
        return report.notes
    where = f"{graph.where}: " if graph.where else ""
    refused = f"The step cannot be captured into a graph as it is: {where}"
    return [*report.notes, refused + graph.why_not]


def _ranks(console: Console, report: Report) -> None:
    table = Table(title=f"{report.device}: ranks", title_style="bold")
    for name in ("ranks", "step", "exposed communication", "bound by"):
        table.add_column(name, justify="left" if name == "bound by" else "right")
    for row in report.ranks:
        exposed = f"{time_text(row.exposed_us)} ({row.exposed_us / row.step_us:.0%})"
        table.add_row(f"{row.ranks:,}", time_text(row.step_us), exposed, row.bound_by)
    console.print(table)


def _details(console: Console, report: Report) -> None:
    if report.ranks:
        _ranks(console, report)
    what_if = Table(title=f"{report.device}: what if", title_style="bold")
    what_if.add_column("change", style="cyan")
    what_if.add_column("step", justify="right")
    what_if.add_column("throughput", justify="right")
    for row in report.what_if:
        what_if.add_row(row.what, time_text(row.step_us), factor_text(row.speedup))
    console.print(what_if)
    for sentence in remarks(report):
        console.print(sentence)
    if report.blames:
        blames = Table(title=f"{report.device}: lines", title_style="bold")
        blames.add_column("line", style="cyan", overflow="fold")
        blames.add_column("why")
        for name in ("times", "host", "device idle"):
            blames.add_column(name, justify="right")
        for blame in report.blames[:_MOST_ROWS]:
            blames.add_row(
                blame.where,
                blame.reason,
                f"{blame.times:,.1f}",
                time_text(blame.host_us),
                time_text(blame.idle_us),
            )
        console.print(blames)
    operators = Table(title=f"{report.device}: operators", title_style="bold")
    operators.add_column("operator", style="cyan")
    for name in ("calls a step", "device", "host"):
        operators.add_column(name, justify="right")
    by_host = sorted(report.operators, key=lambda row: -row.host_us)
    shown = dict.fromkeys([*report.operators[:_MOST_ROWS], *by_host[:_MOST_ROWS]])
    for operator in shown:
        operators.add_row(
            operator.name,
            f"{operator.calls:,.1f}",
            time_text(operator.device_us),
            time_text(operator.host_us),
        )
    console.print(operators)
