"""Every name of the contract exists, with its signature and a docstring."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from contract import NAMES, OWNED_ELSEWHERE, Name, describe, expected_parameters

HERE = [name for name in NAMES if name.path not in OWNED_ELSEWHERE]


def path(name: Name) -> str:
    return name.path


@pytest.mark.parametrize("name", HERE, ids=path)
def test_a_contracted_name_exists(name: Name):
    name.find()


def test_no_name_that_exists_is_listed_as_owned_elsewhere():
    listed = [name for name in NAMES if name.path in OWNED_ELSEWHERE]

    assert len(listed) == len(OWNED_ELSEWHERE), "a listed name is not contracted"
    assert [name.path for name in listed if name.exists()] == []


@pytest.mark.parametrize(
    "name", [n for n in HERE if n.parameters is not None], ids=path
)
def test_a_signature_is_the_contracted_one(name: Name):
    found = describe(inspect.signature(name.find()))
    expected = expected_parameters(name)

    assert found[: len(expected)] == expected
    # What we add must be optional.
    for _, default, _ in found[len(expected) :]:
        assert default is not inspect.Parameter.empty


@pytest.mark.parametrize("name", [n for n in HERE if n.kind != "attribute"], ids=path)
def test_a_name_has_a_docstring(name: Name):
    if name.path != "OutOfMemoryError":  # torch's own class
        assert inspect.getdoc(name.find())


def test_reading_every_name_does_not_initialise(python):
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import npu_dispatch, torch
from contract import NAMES, OWNED_ELSEWHERE
for name in NAMES:
    if name.path not in OWNED_ELSEWHERE:
        name.find()
print(torch.npu.is_initialized())
"""
    assert python(code).stdout.strip() == "False"
