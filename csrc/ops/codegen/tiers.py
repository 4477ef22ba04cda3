"""Writes npu_dispatch/op_tiers.txt and docs/ops.md: how each operator runs.

tiers.py [--check]. Needs an installed npu_dispatch: what is registered with
torch's dispatcher is asked of the dispatcher.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import torch
from select_ops import select

ROOT = Path(__file__).resolve().parents[3]
DATA, PAGE = ROOT / "npu_dispatch" / "op_tiers.txt", ROOT / "docs" / "ops.md"

TIERS = {
    "structured": "asynchronous; torch's own shape function, which is the kernel's",
    "meta": "asynchronous; shapes from the operator's meta kernel, run once per "
    "combination of shapes and constants, and checked against the kernel",
    "hand": "asynchronous where cuda's is; written by hand (views, copies, factories)",
    "composite": "made of other operators, each with a tier of its own",
    "synchronous": "the caller waits: shapes depend on data, a result is not a "
    "tensor, torch computes on the calling thread, or nothing infers shapes",
    "unsupported": "no cpu kernel to run, or one that is refused",
}
# Written by hand, and what they return is a value of the device's.
READ_VALUES = {"_local_scalar_dense", "equal"}
COMPOSITES = [
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
]


def returns_tensors(schema) -> bool:
    return all(
        str(r.type) in ("Tensor", "Optional[Tensor]", "List[Tensor]")
        for r in schema.returns
    )


def depends_on_data(schema) -> bool:
    packet = getattr(torch.ops.aten, schema.name.removeprefix("aten::"), None)
    overload = getattr(packet, schema.overload_name or "default", None)
    tags = getattr(overload, "tags", [])
    return (
        torch.Tag.dynamic_output_shape in tags
        or torch.Tag.data_dependent_output in tags
    )


def of_parts(full: str) -> set[str]:
    """Return how kernels for sparse and nested tensors run: {"hand", "synchronous"} or less."""
    notes = {"on the tensor's parts": "hand", "the caller waits": "synchronous"}
    return {
        notes[note]
        for line in torch._C._dispatch_dump(full).splitlines()
        for note in notes
        if line.startswith(("Sparse", "Nested"))
        and "PrivateUse1" in line
        and note in line
    }


def notes(full: str) -> str:
    """Return what is noted of the kernel for ordinary tensors, or ""."""
    for line in torch._C._dispatch_dump(full).splitlines():
        if line.startswith("PrivateUse1"):
            return line.split(":")[1].strip()
    return ""


def tier(schema, structured: set[str]) -> str:
    full = schema.name + ("." + schema.overload_name if schema.overload_name else "")
    has, computed = (
        torch._C._dispatch_has_kernel_for_dispatch_key,
        torch._C._dispatch_has_computed_kernel_for_dispatch_key,
    )
    own = has(full, "PrivateUse1")
    selected = full.removeprefix("aten::")
    if selected in structured:
        return "structured"
    if selected in READ_VALUES or notes(full) == "the caller waits":
        return "synchronous"
    if notes(full) == "refused":
        return "unsupported"
    if not own and any(has(full, key) for key in COMPOSITES):
        return "composite"
    if not computed(full, "CPU"):
        on_parts = of_parts(full)
        if "synchronous" in on_parts:
            return "synchronous"
        return "hand" if own or on_parts else "unsupported"
    if own and selected not in GENERATED and not selected.startswith("_foreach_"):
        return "hand"
    if not returns_tensors(schema) or depends_on_data(schema):
        return "synchronous"
    return "meta" if computed(full, "Meta") else "synchronous"


OPS = select()
GENERATED = {op.schema_name for op in OPS}


def table() -> dict[str, str]:
    """Return {operator: tier} of every aten schema."""
    structured = {op.schema_name for op in OPS if op.structured}
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        full = schema.name + (
            "." + schema.overload_name if schema.overload_name else ""
        )
        # TorchScript's own (aten::append of lists) are no dispatcher's operators.
        if torch._C._dispatch_has_kernel(full):
            found[full] = tier(schema, structured)
    return dict(sorted(found.items()))


def page(found: dict[str, str]) -> str:
    counts = Counter(found.values())
    lines = [
        "# How each operator runs",
        "",
        "Made by `python csrc/ops/codegen/tiers.py`; `npu-dispatch ops [NAME]` prints",
        "the whole table.",
        "",
        "| tier | operators | meaning |",
        "|---|---|---|",
        *(f"| {t} | {counts[t]} | {text} |" for t, text in TIERS.items()),
        "",
        "Some composites of torch read or write memory on the calling thread, beside any",
        "queue. Each was called where that is seen (`tests/conformance/composites.py`):",
        "those that do wait for the device first, and are in the list `synchronous`, or",
        "are refused, and are in `unsupported`.",
        "",
        "What depends on *values* is found by the kernel, and raised where the program",
        "waits or launches next, as everywhere: an index out of range, a negative `std` of",
        "`torch.normal()`, a probability above 1 of `torch.bernoulli()`. cuda waits for the",
        "`std`, and after the probability its device is of no more use to the process.",
        "",
        "Operators of `torch.library` are `meta` with a fake kernel and `synchronous`",
        "without: [custom_ops.md](custom_ops.md).",
    ]
    queued = [op.removeprefix("aten::") for op in found if of_parts(op) == {"hand"}]
    lines += [
        "",
        "## sparse and nested tensors",
        "",
        "COO, CSR, CSC, BSR and BSC tensors keep their indices and values in tensors of",
        "the device, strided nested ones their values. These operators on them only",
        "queue work on those, and wait only where they must coalesce first; for every",
        "other operator on such a tensor the caller waits. (Jagged nested tensors are",
        "made of ordinary operators.)",
        "",
        ", ".join(f"`{op}`" for op in queued),
    ]
    for name in ("synchronous", "unsupported"):
        members = [op.removeprefix("aten::") for op, t in found.items() if t == name]
        lines += ["", f"## {name}", "", *(f"- `{op}`" for op in members)]
    return "\n".join(lines) + "\n"


def main() -> int:
    found = table()
    texts = {
        DATA: "".join(f"{t} {op}\n" for op, t in found.items()),
        PAGE: page(found),
    }
    stale = [p for p, text in texts.items() if not p.exists() or p.read_text() != text]
    if "--check" in sys.argv:
        for path in stale:
            print(f"{path.name} is stale: run csrc/ops/codegen/tiers.py")
        return 1 if stale else 0
    for path in stale:
        path.write_text(texts[path])
    return 0


if __name__ == "__main__":
    sys.exit(main())
