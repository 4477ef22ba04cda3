"""What a graph has captured: operators whose numbers may change, and a drawing of all.

NPUGraph.update() changes the numbers, and NPUGraph.debug_dump() writes the drawing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from npu_dispatch import _C

_NUMBERS = ("number", "Scalar", "float", "int", "List[int]", "List[float]")


def _numbers(function: Any) -> frozenset[str]:
    """Return the names of an operator's arguments that are numbers."""
    found = set()
    for argument in function._schema.arguments:
        type_ = argument.type
        if type_.kind() == "OptionalType":
            type_ = type_.getElementType()
        if str(type_) in _NUMBERS:
            found.add(argument.name)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class Record:
    """One captured operator, and what it was called with."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    names: frozenset[str]
    group: _C.TaskGroup
    stream: tuple[int, int]  # the device and the id of the one that captured it

    def call_with(self, numbers: dict[str, Any]) -> None:
        """Call the operator again with other numbers."""
        schema = [argument.name for argument in self.function._schema.arguments]
        args, kwargs = list(self.args), dict(self.kwargs)
        for name, value in numbers.items():
            position = schema.index(name)
            if position < len(args):
                args[position] = value
            else:
                kwargs[name] = value
        self.function(*args, **kwargs)


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Makes a task group of every operator that takes numbers and queues tasks."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.records: list[Record] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        names = _numbers(func)
        if not names or not _C.is_capturing():
            return func(*args, **kwargs)
        device = _C.current_device()
        where = (device, _C.current_stream(device))
        _C.begin_task_group(*where)
        group = None
        try:
            result = func(*args, **kwargs)
        finally:
            group = _C.end_task_group(*where)
        if group is not None:
            self.records.append(Record(func, args, kwargs, names, group, where))
        return result

    def select(
        self, updates: list[dict[str, Any]]
    ) -> Iterator[tuple[Record, dict[str, Any]]]:
        """Pair records with what changes in them; raise as NPUGraph.update() says."""
        count = len(self.records)
        if not isinstance(updates, list) or len(updates) not in (1, count):
            raise RuntimeError(
                f"update() takes a list of 1 or {count} dicts, one per captured "
                f"operator that takes numbers, got {updates!r}"
            )
        if len(updates) == 1 and count != 1:
            wanted = updates[0].keys()
            chosen = [(r, updates[0]) for r in self.records if wanted <= r.names]
            if not chosen:
                raise RuntimeError(
                    f"update(): no captured operator takes {sorted(wanted)}"
                )
        else:
            chosen = list(zip(self.records, updates, strict=True))
        for record, numbers in chosen:
            if unknown := numbers.keys() - record.names:
                raise RuntimeError(
                    f"update(): {record.function} takes no number named "
                    f"{sorted(unknown)}; it takes {sorted(record.names)}"
                )
        return ((record, numbers) for record, numbers in chosen if numbers)


Node = dict[str, Any]

_MOST_SHAPES = 5


def dot(nodes: list[Node]) -> str:
    """Return the text for what NPUGraph.nodes() returns."""
    lines = ["digraph graph_ {", "  node [shape=box, fontname=sans, fontsize=10];"]
    for stream in dict.fromkeys(node["stream"] for node in nodes):
        lines.append(f'  subgraph "cluster_{stream}" {{ label="stream {stream}";')
        lines += [
            f'    n{i} [label="{_label(i, node)}"];'
            for i, node in enumerate(nodes)
            if node["stream"] == stream
        ]
        lines.append("  }")
    lines += [
        f"  n{before} -> n{i};"
        for i, node in enumerate(nodes)
        for before in node["after"]
    ]
    return "\n".join([*lines, "}"]) + "\n"


def _label(index: int, node: Node) -> str:
    shapes = ["x".join(map(str, t["shape"])) or "scalar" for t in node["tensors"]]
    more = " ..." if len(shapes) > _MOST_SHAPES else ""
    parts = (
        f"{index} {node['op']}",
        " ".join(shapes[:_MOST_SHAPES]) + more,
        node["line"].rpartition("/")[2],
    )
    return "\\n".join(filter(None, parts)).replace('"', "'")
