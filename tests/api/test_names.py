"""Each contracted name is there as contracted; typed tensors and storages work."""

import inspect
import warnings
from collections.abc import Iterator

import pytest
import torch

from npu_dispatch.npu import legacy
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


TYPES = sorted(legacy._TYPES)


@pytest.mark.parametrize("name", TYPES)
def test_a_tensor_type_makes_and_recognises_its_tensors(name):
    kind, dtype = getattr(torch.npu, f"{name}Tensor"), legacy._TYPES[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = [kind(2, 3), kind([0, 1]), kind(torch.Size([4])), kind()]

    assert [tuple(t.shape) for t in made] == [(2, 3), (2,), (4,), (0,)]
    assert all(t.dtype == dtype and t.is_npu for t in made)
    assert made[1].tolist() == [0, 1]
    assert all(isinstance(t, kind) for t in made)
    assert not isinstance(torch.empty(1, dtype=dtype), kind)
    assert made[0].type() == f"torch.npu.{name}Tensor"
    for wanted in (kind, f"torch.npu.{name}Tensor"):
        x = torch.ones(2).type(wanted)
        assert x.is_npu and x.dtype == dtype


@pytest.mark.parametrize("name", sorted(legacy._STORED))
def test_a_storage_type_makes_and_recognises_its_storages(name):
    kind, dtype = getattr(torch.npu, f"{name}Storage"), legacy._STORED[name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns of them once per process
        storage = kind(5)
        assert storage.device.type == "npu" and len(storage) == 5
        assert storage.dtype == dtype and isinstance(storage, kind)
        assert torch.zeros(1, dtype=dtype, device="npu").storage_type() is kind
        for refused in (kind.from_buffer, kind._new_with_weak_ptr):
            with pytest.raises(RuntimeError, match="Not available"):
                refused()
        with pytest.raises(RuntimeError, match="Not available"):
            kind._new_shared_filename(None, None, 1)


def test_old_names_are_the_new_ones():
    assert torch.npu.device_ctx_manager is torch.npu.device
    assert torch.npu.OutOfMemoryError is torch.OutOfMemoryError
    assert torch.npu._initialized in (True, False)
