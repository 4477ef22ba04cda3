"""cpu under another name, for tests that ask less of cpu than of other devices.

Some tests end early, or skip, where the device is called "cpu". For the comparison with
cpu they are run there in disguise: `device == "cpu"` and `torch.device(device).type ==
"cpu"` are false in them and in the modules of their suite, and tensors are made on cpu
all the same.
"""

from __future__ import annotations

import functools
import sys
from types import ModuleType
from typing import Any

import pytest
import torch

_LITERAL = sys.intern("cpu")


class Name(str):
    """The name of cpu, which is not equal to the one that a program spells out.

    It is equal to what a tensor calls its device: only literals are interned.
    """

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Name) or (other is not _LITERAL and str(self) == other)

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


class _Devices(type):
    """torch.device, which does not know cpu by its name."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Name):
            return _Device()
        return torch.device(*args, **kwargs)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.device)


class Torch(ModuleType):
    """torch, but for its `device`."""

    class device(metaclass=_Devices):
        pass

    def __init__(self) -> None:
        super().__init__("torch")

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


@functools.cache
def _let_it_run() -> None:
    # Its import takes a second, which most suites spare.
    from torch.testing._internal import common_device_type as known

    known.NATIVE_DEVICES = (*known.NATIVE_DEVICES, Name("cpu"))


def put_on(item: pytest.Item) -> None:
    """Disguise the device that a test has as an argument, or by its class."""
    arguments = getattr(item, "funcargs", {})
    owner = getattr(item, "cls", None)
    of_class = getattr(owner, "device_type", None)  # as PyTorch's own suites have it
    if of_class is not None:
        if str(of_class) != "cpu":
            return
        owner.device_type = Name("cpu")
        # The arguments that torch has made for the test, and what may run it.
        for made in getattr(owner, item.name).__defaults__ or ():
            if isinstance(made, dict) and "device" in made:
                made["device"] = Name("cpu")
        _let_it_run()
    elif arguments.get("device") == "cpu":
        arguments["device"] = Name("cpu")
    else:
        return
    suite, _, _ = item.module.__name__.partition(".")
    for name, module in list(sys.modules.items()):
        of_suite = module is item.module or name.partition(".")[0] == suite
        if of_suite and vars(module).get("torch") is torch:
            vars(module)["torch"] = Torch()
