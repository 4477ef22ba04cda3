"""A pytest plugin for PyTorch's tests of an older release than the torch they judge.

They import names that torch.testing._internal had then. Each is given what it was, or
what changes nothing on a device that is not CUDA. A class of a device has the methods
of its base now: one that calls super(self.__class__, self) would call itself.
"""

from collections.abc import Callable
from typing import Any

import pytest
from torch.testing._internal import (
    common_cuda,
    common_methods_invocations as methods,
    common_mkldnn,
    common_nn,
)
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.opinfo.core import BinaryUfuncInfo


def _once(*_: Any, **__: Any) -> Callable[[Any], Any]:
    """Stand for a decorator that ran a test with and without a mode of mkldnn."""
    return lambda test: test


_NAMES = {
    common_cuda: {"tf32_is_not_fp32": lambda: False},
    common_mkldnn: {"bf32_on_and_off": _once},
    # Modules that were tested by lists; test_modules has them all.
    common_nn: {"new_module_tests": []},
    methods: {
        "binary_ufuncs_and_refs": [
            op
            for op in (*methods.op_db, *methods.python_ref_db)
            if isinstance(op, BinaryUfuncInfo)
        ]
    },
}

for module, names in _NAMES.items():
    for name, value in names.items():
        if not hasattr(module, name):
            setattr(module, name, value)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a class that would call itself what it meant to call."""
    test_class = getattr(item, "cls", None)
    for name in ("setUp", "tearDown"):
        method = getattr(test_class, name, None)
        if method and "__class__" in method.__code__.co_names:
            setattr(test_class, name, getattr(TestCase, name))
