"""Copies, printing, and calls that the comparison of all operators does not make."""

import contextlib

import pytest
import torch
from held_stream import Held
from host_waits import host_waits
from sanitizer_off import sanitizer_off
from torch import nn


def same(on_npu: torch.Tensor, on_cpu: torch.Tensor) -> None:
    torch.testing.assert_close(on_npu.cpu(), on_cpu, rtol=0, atol=0)


def test_a_queued_task_does_not_see_later_changes_of_its_tensors_shape():
    x = torch.arange(6.0).npu()
    y = x + 1

    x.resize_(2, 2)
    x.t_()

    same(y, torch.arange(6.0) + 1)


def test_host_indices_are_accepted():
    x = torch.rand(5, 3)

    same(x.npu()[torch.tensor([4, 0])], x[torch.tensor([4, 0])])


def test_copies_in_all_directions():
    x = torch.rand(6, 5)
    on_npu = x.npu()

    same(on_npu.t(), x.t())
    same(on_npu.to(torch.float64), x.to(torch.float64))
    same(on_npu[::2, 1:].clone(), x[::2, 1:])
    pinned = torch.empty(6, 5).pin_memory()
    pinned.copy_(on_npu, non_blocking=True)
    torch.npu.synchronize()
    torch.testing.assert_close(pinned, x)
    gaps = torch.zeros(6, 10).npu()
    gaps[:, ::2].copy_(x)
    same(gaps[:, ::2], x)
    big = torch.rand(3000, 1000)
    same(big.npu(), big)


def test_ctrl_c_inside_a_meta_kernel_ends_the_call():
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    with torch.library._scoped_library("npu_interrupted", "DEF") as library:
        library.define("op(Tensor x) -> Tensor")
        library.impl("op", lambda x: x.clone(), "CPU")
        library.impl("op", interrupted, "Meta")

        with pytest.raises(KeyboardInterrupt):
            torch.ops.npu_interrupted.op(torch.ones(2).npu())


@pytest.mark.parametrize("n", [1, 1000, 4096, 100_000])
def test_what_is_on_its_way_into_pinned_memory_is_what_is_copied_on(n):
    source = torch.arange(n, dtype=torch.float32, device="npu")
    host = torch.full((n,), -1.0).pin_memory()
    target = torch.zeros(n, device="npu")
    torch.npu.synchronize()

    with Held():
        host.copy_(source, non_blocking=True)
        target.copy_(host, non_blocking=True)
        assert not torch.npu.current_stream().query()

    assert target.tolist() == list(range(n))


@pytest.mark.parametrize("n", [1, 100_000])
@pytest.mark.parametrize(
    ("pinned", "found"), [(True, 7), (False, 0)], ids=["pinned", "pageable"]
)
def test_pageable_memory_is_read_at_once_and_pinned_memory_in_order(n, pinned, found):
    # A program must not write pinned memory so early.
    with sanitizer_off() if pinned else contextlib.nullcontext():
        host = torch.zeros(n, pin_memory=pinned)
        target = torch.empty(n, device="npu")

        with Held():
            target.copy_(host, non_blocking=True)
            host.fill_(7)

        assert target.eq(found).all()


def test_a_blocking_copy_reads_at_once():
    host, target = torch.zeros(4).pin_memory(), torch.empty(4, device="npu")

    with Held():
        with torch.npu.stream(torch.npu.Stream()):
            target.copy_(host)
        host.fill_(7)
    torch.npu.synchronize()

    assert target.tolist() == [0] * 4


def test_registered_memory_is_pinned_until_it_is_not(caplog):
    runtime, host = torch.npu.npurt(), torch.zeros(5000)
    address, target = host.data_ptr(), torch.empty(5000, device="npu")
    assert not host.is_pinned()

    assert runtime.npuHostRegister(address, host.nbytes, 2) == 0
    assert host.is_pinned() and host[4999:].is_pinned()
    for overlap in (address, address + 400):
        assert runtime.npuHostRegister(overlap, 100) != 0
        assert "registered already" in caplog.messages[-1]
    with Held():
        target.copy_(host, non_blocking=True)
        assert not torch.npu.current_stream().query()
    torch.npu.synchronize()
    assert runtime.npuHostUnregister(address) == 0

    assert not host.is_pinned() and target.eq(0).all()
    assert runtime.npuHostUnregister(address) != 0
    assert "has not been registered" in caplog.messages[-1]
    for refused in ((0, 100), (address, 0)):
        assert runtime.npuHostRegister(*refused) != 0
        assert "no host memory" in caplog.messages[-1]


TENSORS = {
    "numbers": torch.arange(48.0).view(6, 8),
    "summarized": torch.arange(2000),
    "scalar": torch.tensor(3.5),
    "complex": torch.tensor([1 + 2j, -3.25j]).conj(),
    "mask": torch.tensor([True, False]),
    "half": torch.tensor([[0.5, 1.25]], dtype=torch.float16),
    "leaf": torch.ones(2, requires_grad=True),
    "strided": torch.arange(24.0).view(4, 6)[::2, ::3],
}


@pytest.mark.parametrize("name", TENSORS)
def test_a_tensor_waits_once_to_be_printed(name):
    t = TENSORS[name]
    on_device = t.detach().npu().requires_grad_(t.requires_grad)
    told: list[str] = []

    waits = host_waits(lambda: told.append(repr(on_device)))

    assert len(waits) == 1
    [text] = told
    plain = text.replace("device='npu:0'", "").replace(",", "").split()
    assert plain in (
        repr(t).replace(",", "").split(),
        repr(t).replace(",", "").replace(")", " )").split(),
    )


def test_a_parameter_is_printed_as_on_cpu():
    parameter = nn.Parameter(torch.arange(3.0))
    text = repr(nn.Parameter(parameter.detach().npu()))
    assert text == repr(parameter).replace("requires", "device='npu:0', requires")
