"""Calls torch's composite operators with made-up arguments, on cpu and on npu.

    NPU_DRIVER=.../libnpu_guarded.so python -m tests.conformance.composites

A composite's kernel may read or write the memory of a tensor itself, on the calling
thread and beside the queue. On the driver `guarded` whoever does so is noted. It prints
what came of each operator as JSON. Operators run in children, as on cpu many end their
process with arguments that nobody would pass. See test_composites.py.
"""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch.utils import _pytree as pytree

from tests.search.children import Died, work_through
from tests.support import guarded

ROOT = Path(__file__).resolve().parents[2]
TABLE = ROOT / "npu_dispatch" / "op_tiers.txt"
SECONDS = 30  # for one operator, whose arguments may make it long

TENSORS = {
    "matrix": lambda: torch.arange(1.0, 10.0).view(3, 3) / 4,
    "row": lambda: torch.tensor([0.25, 2.0, 0.5]),
    "images": lambda: torch.arange(36.0).view(1, 4, 3, 3) / 8,
    "batches": lambda: torch.arange(12.0).view(2, 2, 3) / 4,
    "indices": lambda: torch.tensor([2, 0, 1]),
    "matrix of indices": lambda: torch.arange(9).view(3, 3) % 3,
    "mask": lambda: torch.tensor([True, False, True]),
    "complex": lambda: torch.complex(torch.ones(3, 3), torch.eye(3)),
    "number": lambda: torch.tensor(2.0),
    "narrow": lambda: torch.tensor([5.0, -3.0, 0.5]).half(),
}
# What several tensors of one call are: all the same, or the first another one.
MIXES = [(name, name) for name in TENSORS] + [
    ("matrix", "indices"),
    ("matrix", "matrix of indices"),
    ("matrix", "row"),
    ("matrix", "mask"),
    ("matrix", "number"),
    ("row", "indices"),
    ("images", "row"),
    ("batches", "matrix"),
]
INTS = (0, 1, 3)
# It makes a tensor of torch.vmap's, which is nothing outside of one.
NOT_ALONE = {"aten::_add_batch_dim"}


def value_of(type_: torch._C.Type, mix: tuple[str, str], number: int, made: list):
    """Return an argument of a type; None where it may be left out or is not known."""
    kind = str(type_)
    if kind == "Tensor":
        made.append(TENSORS[mix[bool(made)]]())
        return made[-1]
    if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
        made += [TENSORS[mix[bool(made)]]() for _ in range(2)]
        return made[-2:]
    plain = {
        "int": number,
        "SymInt": number,
        "float": 0.5,
        "bool": bool(number),
        "number": 2,
        "Scalar": 2,
        "str": ("mean", "ij", "none")[number % 3],
        "Device": torch.device("cpu"),
        "List[int]": [number],
        "List[SymInt]": [number],
        "List[float]": [0.5],
        "List[bool]": [True],
        "List[number]": [2],
        "complex": 1j,
    }
    return plain.get(kind)


def arguments_of(
    schema: torch._C.FunctionSchema, mix: tuple[str, str], number: int
) -> tuple[list, dict]:
    made: list[torch.Tensor] = []
    positional, named = [], {}
    for argument in schema.arguments:
        if argument.has_default_value() and not argument.kwarg_only:
            break  # a later one is left out, too
        if argument.has_default_value():
            continue
        value = value_of(argument.real_type, mix, number, made)
        if argument.kwarg_only:
            named[argument.name] = value
        else:
            positional.append(value)
    return positional, named


def candidates(schema: torch._C.FunctionSchema) -> Iterator[tuple[list, dict]]:
    for mix, number in itertools.product(MIXES, INTS):
        yield arguments_of(schema, mix, number)


def on(device: str, tree):
    def move(leaf):
        if isinstance(leaf, torch.Tensor):
            return leaf.to(device, copy=True)
        return torch.device(device) if isinstance(leaf, torch.device) else leaf

    return pytree.tree_map(move, tree)


def tensors(tree) -> list[torch.Tensor]:
    found = [t for t in pytree.tree_leaves(tree) if isinstance(t, torch.Tensor)]
    return [t.cpu() for t in found if t.layout == torch.strided and not t.is_nested]


def first_that_fits(op: torch._ops.OpOverload) -> tuple[tuple[list, dict], list] | None:
    """Return arguments that cpu takes, and the results and arguments afterwards."""
    for call in candidates(op._schema):
        args, kwargs = on("cpu", call)
        try:
            results = op(*args, **kwargs)
        except Exception:
            continue
        if tensors(call):
            return call, [results, args, kwargs]
    return None


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    return (
        one.shape == other.shape
        and one.dtype == other.dtype
        and torch.allclose(one, other, rtol=1e-3, atol=1e-3, equal_nan=True)
    )


def on_npu(op: torch._ops.OpOverload, call: tuple[list, dict], expected: list) -> str:
    """Return what happened: equal, random, differs, refused: ..., touched: ..."""
    args, kwargs = on("npu", call)
    torch.npu.synchronize()
    guarded.taken()
    try:
        found = [op(*args, **kwargs), args, kwargs]
        torch.npu.synchronize()
    except Exception as error:
        return f"refused: {str(error).splitlines()[0][:200]}"
    if touched := guarded.taken():
        return f"touched: {touched}"
    if torch.Tag.nondeterministic_seeded in op.tags or "empty" in str(op):
        return "random"
    pairs = zip(tensors(expected), tensors(found), strict=True)
    try:
        return "equal" if all(same(a, b) for a, b in pairs) else "differs"
    except Exception as error:
        return f"not compared: {error}"


def overload(name: str) -> torch._ops.OpOverload | None:
    packet, _, which = name.removeprefix("aten::").partition(".")
    try:
        return getattr(getattr(torch.ops.aten, packet), which or "default")
    except AttributeError:
        return None


def composites() -> list[str]:
    rows = (line.split() for line in TABLE.read_text().splitlines())
    return [name for tier, name in rows if tier == "composite"]


def found_of(name: str, report: Callable[[str], None]) -> str:
    op = overload(name)
    if op is None:
        return "not there"
    report("on cpu")
    fitting = first_that_fits(op)
    if fitting is None:
        return "takes none of these"
    report("on npu")
    return on_npu(op, *fitting)


def main() -> None:
    torch.manual_seed(0)
    names = [name for name in composites() if name not in NOT_ALONE]
    found = {}
    for name, answer in work_through(names, found_of, 1, SECONDS, len(names)):
        died = isinstance(answer, Died)
        found[name] = f"ended its process: {answer.why}" if died else answer
    print(json.dumps(found))


if __name__ == "__main__":
    main()
