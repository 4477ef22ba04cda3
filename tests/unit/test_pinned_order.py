"""Asynchronous copies from pinned memory happen in the order of the stream."""

from __future__ import annotations

import pytest
import torch
from held_stream import Held


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
    host = torch.zeros(n, pin_memory=pinned)
    target = torch.empty(n, device="npu")

    with Held():
        target.copy_(host, non_blocking=True)
        host.fill_(7)  # too early for pinned memory, as a program must not do

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
