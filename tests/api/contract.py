"""The contracted names, as tests/api/names.txt lists them."""

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

_KINDS = {"f": "function", "c": "class", "m": "method", "a": "attribute"}


@dataclass(frozen=True)
class Name:
    section: int
    kind: str
    path: str
    parameters: str | None  # None: an attribute, or torch's own business

    def find(self) -> Any:
        value: Any = torch.npu
        for part in self.path.split("."):
            value = getattr(value, part)
        return value


def _parse(line: str) -> Name:
    section, kind, rest = line.split(" ", 2)
    path, bracket, parameters = rest.partition("(")
    known = None if not bracket or parameters == "*)" else parameters[:-1]
    return Name(int(section), _KINDS[kind], path, known)


NAMES = [
    _parse(line)
    for line in (Path(__file__).parent / "names.txt").read_text().splitlines()
    if not line.startswith("#")
]


def expected_parameters(name: Name) -> list[tuple[str, Any, str]]:
    """Return name, default and kind of each parameter that the contract gives."""
    made: dict[str, Any] = {}
    exec(f"def f({name.parameters}): ...", made)
    return describe(inspect.signature(made["f"]))


def describe(signature: inspect.Signature) -> list[tuple[str, Any, str]]:
    """Return a signature's parameters without its types."""
    return [
        (p.name, p.default, p.kind.name)
        for p in signature.parameters.values()
        if p.name not in {"self", "cls"}
    ]
