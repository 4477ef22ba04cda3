"""Calls and copies that the comparison of all operators does not make."""

from __future__ import annotations

import pytest
import torch


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
