"""What an all-reduce would take on more ranks than this machine has.

npu_dispatch/plan/network/collectives.py simulates it; this makes the table of
docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from functools import partial

from npu_dispatch.plan.network.collectives import (
    Link,
    Ranks,
    hierarchical,
    mesh,
    ring,
    tree,
)

SIZES = {4: "4 B", 1 << 20: "1 MB", 1 << 26: "64 MB"}
PER_HOST = 8
GIGABIT = 8e-9  # seconds for each byte


def table(across: Link, inside: Link, per_host: int) -> list[dict[str, float]]:
    """Return milliseconds of each algorithm, by ranks and bytes."""
    rows = []
    for n in (2, 8, 64, 512, 4096):
        for size in SIZES:
            row: dict[str, float] = {"ranks": n, "bytes": size}
            runs = {
                "mesh_ms": mesh if n <= 512 else None,  # n squared messages
                "ring_ms": ring if n <= 512 else None,  # and so has it
                "tree_ms": tree,
                "hierarchical_ms": partial(hierarchical, per_host=min(per_host, n)),
            }
            for name, run in runs.items():
                if run is None:
                    continue
                ranks = Ranks(n, across, inside, per_host)
                run(ranks, range(n), size)
                row[name] = round(ranks.time() * 1e3, 3)
            rows.append(row)
    return rows


def shown(ms: float) -> str:
    """Three digits that matter, and no exponent."""
    return f"{ms:.0f}" if ms >= 100 else f"{ms:.3g}"


def markdown(rows: Sequence[Mapping[str, float]]) -> str:
    """Return the table of docs/scale.md: what tells more than two ranks apart."""
    text = "| ranks | bytes | all to all, ms | ring | tree | hierarchical |\n"
    text += "|---|---|---|---|---|---|\n"
    for row in rows:
        if row["ranks"] < 8:
            continue
        names = ("mesh_ms", "ring_ms", "tree_ms", "hierarchical_ms")
        cells = [shown(row[name]) if name in row else "" for name in names]
        size = SIZES[int(row["bytes"])]
        text += f"| {row['ranks']} | {size} | {' | '.join(cells)} |\n"
    return text


def main() -> None:
    """Print a JSON line for each number of ranks and bytes."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("across", "inside"):
        parser.add_argument(f"--{name}-alpha", type=float, required=True, help="s")
        parser.add_argument(f"--{name}-beta", type=float, required=True, help="s/byte")
    parser.add_argument(
        "--per-host", type=int, default=PER_HOST, help="ranks of a host"
    )
    args = parser.parse_args()
    across = Link(args.across_alpha, args.across_beta)
    inside = Link(args.inside_alpha, args.inside_beta)
    for row in table(across, inside, args.per_host):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
