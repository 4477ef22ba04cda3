"""The sheets and topologies of the package on a terminal. This imports no torch."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from npu_dispatch.plan.network import topology
from npu_dispatch.plan.sheet import Sheet, built_in, load

__all__ = ["show"]


def show() -> None:
    """Print what devices and networks there are, and where figures are from."""
    sheets = {name: load(name) for name in built_in()}
    # Names may look like markup.
    console = Console(markup=False, emoji=False)
    console.print(_devices(sheets))
    console.print(_sources(sheets))
    console.print(_topologies())


def _devices(sheets: dict[str, Sheet]) -> Table:
    table = Table(title="sheets", title_style="bold")
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("device")
    for figure in ("memory", "GB/s", "fp16\nTFLOP/s", "fp32\nTFLOP/s"):
        table.add_column(figure, justify="right")
    for name, sheet in sheets.items():
        memory, tflops = sheet.numbers["memory"], sheet.numbers["tflops"]
        table.add_row(
            name,
            sheet.name,
            f"{memory['gib']:g} GiB",
            f"{memory['gb_per_s']:,.0f}",
            f"{tflops['fp16']:,.1f}",
            f"{tflops['fp32']:,.1f}",
        )
    return table


def _sources(sheets: dict[str, Sheet]) -> Table:
    # Beside the devices it would be as wide as two terminals.
    table = Table(title="sources", title_style="bold")
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("source", overflow="fold")
    table.add_column("date", no_wrap=True)
    for name, sheet in sheets.items():
        table.add_row(name, sheet.source, sheet.date)
    return table


def _topologies() -> Table:
    table = Table(title="topologies", title_style="bold")
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("what")
    for figure in ("ranks of\na host", "GB/s\ninside", "GB/s\nacross"):
        table.add_column(figure, justify="right")
    for name in topology.built_in():
        links = topology.load(name)
        across = links.across
        table.add_row(
            name,
            links.name,
            f"{links.per_host:,}",
            f"{1e-9 / links.inside.beta:,.4g}",
            f"{links.links_across} x {1e-9 / across.beta:,.4g}" if across else "",
        )
    return table
