"""cpu under another name, for tests that ask less of cpu than of other devices.

Some tests end early, or skip, where the device is called "cpu". For the comparison with
cpu they are run there in disguise: `device == "cpu"` and `torch.device(device).type ==
"cpu"` are false in them, and tensors are made on cpu all the same.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import torch


class Name(str):
    """The name of cpu, which does not equal it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(str(self))


class _Device:
    """What torch.device(Name("cpu")) is to a test: only asked for its type."""

    type = Name("cpu")
    index = None

    def __str__(self) -> str:
        return "cpu"


class Torch(ModuleType):
    """torch, whose `device` does not know who it is."""

    def __init__(self) -> None:
        super().__init__("torch")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def device(*args: Any, **kwargs: Any) -> Any:
        return _Device() if args and isinstance(args[0], Name) else torch.device(*args)


def put_on(item: pytest.Item) -> None:
    """Disguise the device that a test has as an argument."""
    arguments = getattr(item, "funcargs", {})
    if arguments.get("device") == "cpu":
        arguments["device"] = Name("cpu")
        vars(item.module).update(torch=Torch())
