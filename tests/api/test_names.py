"""Every name of the contract exists, with its signature and a docstring."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch

from tests.api.contract import NAMES, Name, describe, expected_parameters


def mistakes(name: Name) -> Iterator[str]:
    try:
        value = name.find()
    except AttributeError:
        yield "is missing"
        return
    undocumented = name.kind == "attribute" or name.path == "OutOfMemoryError"
    if not undocumented and not inspect.getdoc(value):
        yield "has no docstring"
    if name.parameters is not None:
        found, expected = describe(inspect.signature(value)), expected_parameters(name)
        ours = found[len(expected) :]
        if found[: len(expected)] != expected:
            yield f"has the parameters {found}, expected {expected}"
        if any(default is inspect.Parameter.empty for _, default, _ in ours):
            yield f"demands what the contract does not have: {ours}"


def test_every_contracted_name_is_there_as_contracted():
    wrong = [f"{name.path} {said}" for name in NAMES for said in mistakes(name)]
    wrong += [f"{n} is missing" for n in torch.npu.__all__ if not hasattr(torch.npu, n)]

    assert wrong == []


def test_reading_every_name_does_not_initialise(python):
    code = f"""
import operator
import npu_dispatch, torch
for path in {[name.path for name in NAMES]}:
    operator.attrgetter(path)(torch.npu)
print(torch.npu.is_initialized())
"""
    assert python(code).stdout.strip() == "False"
