"""Writes npu_dispatch/op_tiers.txt: how each operator runs.

op_tiers.py [--check]. Needs an installed npu_dispatch: what is registered with
torch's dispatcher is asked of the dispatcher.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "csrc/ops/codegen"))
from select_ops import select  # noqa: E402

DATA = ROOT / "npu_dispatch" / "op_tiers.txt"

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
    """Return the tiers of an operator's kernels for sparse and nested tensors."""
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


def main() -> int:
    text = "".join(f"{t} {op}\n" for op, t in table().items())
    if DATA.exists() and DATA.read_text() == text:
        return 0
    if "--check" in sys.argv:
        print(f"{DATA.name} is stale: run tools/op_tiers.py")
        return 1
    DATA.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
