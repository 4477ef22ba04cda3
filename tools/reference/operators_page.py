"""ops.md: how each operator runs, asked of torch's dispatcher."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import op_tiers


def lines() -> Iterator[str]:
    found = op_tiers.table()
    counts = Counter(found.values())
    yield from [
        "# How each operator runs",
        "",
        "`npu-dispatch ops [NAME]` prints the whole table.",
        "",
        "| tier | operators | meaning |",
        "|---|---|---|",
        *(f"| {t} | {counts[t]} | {text} |" for t, text in op_tiers.TIERS.items()),
        "",
        "Some composites of torch read or write memory on the calling thread, beside",
        "any queue. Each was called where that is seen",
        "(`tests/conformance/composites.py`): those that do wait for the device first,",
        "and are in the list `synchronous`, or are refused, and are in `unsupported`.",
        "",
        "What depends on *values* is found by the kernel, and raised where the",
        "program waits or launches next, as everywhere: an index out of range, a",
        "negative `std` of `torch.normal()`, a probability above 1 of",
        "`torch.bernoulli()`. cuda waits for the `std`, and after the probability its",
        "device is of no more use to the process.",
        "",
        "Operators of `torch.library` are `meta` with a fake kernel and `synchronous`",
        "without: [custom_ops.md](custom_ops.md).",
    ]
    queued = [
        op.removeprefix("aten::") for op in found if op_tiers.of_parts(op) == {"hand"}
    ]
    yield from [
        "",
        "## sparse and nested tensors",
        "",
        "COO, CSR, CSC, BSR and BSC tensors keep their indices and values in tensors",
        "of the device, strided nested ones their values. These operators on them only",
        "queue work on those, and wait only where they must coalesce first; for every",
        "other operator on such a tensor the caller waits. (Jagged nested tensors are",
        "made of ordinary operators.)",
        "",
        ", ".join(f"`{op}`" for op in queued),
    ]
    for name in ("synchronous", "unsupported"):
        members = [op.removeprefix("aten::") for op, t in found.items() if t == name]
        yield from ["", f"## {name}", "", *(f"- `{op}`" for op in members)]
