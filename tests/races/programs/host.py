"""Pinned buffers that a queued copy still reads or writes."""

import copy
import io
import pickle

import numpy as np
import torch

npu = torch.npu
N = 20_000  # floats: large enough not to travel inside the task


def _pinned():
    return torch.zeros(N).pin_memory()


def racy_operator_reads_before_the_copy_is_done():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    p.sum()  # second: aten::sum.dim_IntList


def correct_operator_reads_after_a_wait():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    npu.current_stream().synchronize()
    p.sum()


def correct_operator_reads_after_an_event():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    npu.current_stream().record_event().synchronize()
    p.sum()


def racy_event_of_before_the_copy():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    early = npu.current_stream().record_event()
    p.copy_(x, non_blocking=True)  # first: memcpy
    early.synchronize()
    p.sum()  # second: aten::sum.dim_IntList


def racy_host_writes_what_a_copy_reads():
    "host-write"
    p, x = _pinned(), torch.ones(N, device="npu")
    x.copy_(p, non_blocking=True)  # first: memcpy
    p.fill_(1)  # second: aten::fill_.Scalar


def correct_host_writes_after_a_wait():
    p, x = _pinned(), torch.ones(N, device="npu")
    x.copy_(p, non_blocking=True)
    npu.synchronize()
    p.fill_(1)


def correct_host_reads_what_a_copy_reads():
    p, x = _pinned(), torch.ones(N, device="npu")
    x.copy_(p, non_blocking=True)
    p.sum()
    npu.synchronize()


def racy_host_writes_what_a_copy_writes():
    "host-write"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    p.zero_()  # second: aten::zero_


def racy_numpy_reads_too_early():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    p.numpy()  # second: numpy


def correct_numpy_after_a_wait():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    npu.synchronize()
    p.numpy()


def racy_list_reads_too_early():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    p[:3].tolist()  # second: tolist


def racy_item_of_a_pinned_tensor():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    p[7].item()  # second: aten::_local_scalar_dense


def racy_part_that_the_copy_writes():
    "host-read"
    p, x = _pinned(), torch.ones(N // 2, device="npu")
    p[N // 2 :].copy_(x, non_blocking=True)  # first: memcpy
    p[N // 2 - 1 : N // 2 + 1].sum()  # second: aten::sum.dim_IntList


def correct_part_that_the_copy_leaves_alone():
    p, x = _pinned(), torch.ones(N // 2, device="npu")
    p[N // 2 :].copy_(x, non_blocking=True)
    p[: N // 2].sum()
    npu.synchronize()


def racy_view_made_early_and_read():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    view = p.view(100, -1)
    p.copy_(x, non_blocking=True)  # first: memcpy
    view.t()[0].clone()  # second: aten::copy_


def correct_view_made_early_and_not_read():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    p.view(100, -1).t()[0].detach()
    npu.synchronize()


def racy_to_non_blocking_then_read():
    "host-read"
    x = torch.ones(N, device="npu")
    y = torch.empty(N, pin_memory=True)
    y.copy_(x.mul(2), non_blocking=True)  # first: memcpy
    y.max()  # second: aten::max


def racy_two_copies_into_one_buffer():
    "write/write"
    s = npu.Stream()
    p, x = _pinned(), torch.ones(N, device="npu")
    npu.synchronize()
    p.copy_(x, non_blocking=True)  # first: memcpy
    with npu.stream(s):
        p.copy_(x, non_blocking=True)  # second: memcpy


def correct_two_copies_into_one_buffer_in_order():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    p.copy_(x, non_blocking=True)
    npu.synchronize()


def racy_copy_on_a_stream_that_the_host_does_not_wait_for():
    "host-read"
    s = npu.Stream()
    p, x = _pinned(), torch.ones(N, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        p.copy_(x, non_blocking=True)  # first: memcpy
    npu.current_stream().synchronize()
    p.sum()  # second: aten::sum.dim_IntList


def correct_pinned_buffer_freed_during_the_copy():
    p, x = torch.ones(N).pin_memory(), torch.empty(N, device="npu")
    x.copy_(p, non_blocking=True)
    del p
    q = torch.zeros(N).pin_memory()
    q.fill_(3)
    npu.synchronize()


def correct_blocking_copy_reads_at_once():
    p, x = _pinned(), torch.ones(N, device="npu")
    x.copy_(p)
    p.fill_(1)
    p.copy_(x)
    p.sum()


def _pinned_scalar():
    return torch.zeros((), pin_memory=True), torch.ones((), device="npu")


def racy_device_operator_reads_a_pinned_scalar():
    "host-read"
    x = torch.ones(N, device="npu")
    p, one = _pinned_scalar()
    p.copy_(one, non_blocking=True)  # first: memcpy
    x * p  # second: aten::mul.Tensor


def racy_device_operator_is_filled_from_a_pinned_scalar():
    "host-read"
    x = torch.ones(N, device="npu")
    p, one = _pinned_scalar()
    p.copy_(one, non_blocking=True)  # first: memcpy
    x.fill_(p)  # second: aten::fill_.Tensor


def correct_device_operator_reads_a_pinned_scalar_after_a_wait():
    x = torch.ones(N, device="npu")
    p, one = _pinned_scalar()
    p.copy_(one, non_blocking=True)
    npu.current_stream().synchronize()
    x.fill_(p)
    x * p


def correct_pinned_scalar_is_copied_back_by_the_same_stream():
    p, one = _pinned_scalar()
    two, three = torch.empty((), device="npu"), torch.ones((), device="npu")
    p.copy_(one, non_blocking=True)
    two.copy_(p, non_blocking=True)
    torch._foreach_copy_([three], [p], non_blocking=True)
    npu.synchronize()


def racy_save_reads_too_early():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    torch.save(p, io.BytesIO())  # second: save


def racy_pickle_reads_too_early():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    pickle.dumps(p)  # second: save


def correct_save_and_pickle_after_a_wait():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    npu.synchronize()
    torch.save(p, io.BytesIO())
    pickle.dumps(p)


def correct_shallow_copy_of_a_tensor_reads_nothing():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    copy.copy(p)
    npu.synchronize()


def racy_dlpack_reads_too_early():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    np.from_dlpack(p)  # second: from_dlpack


def correct_dlpack_after_a_wait():
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)
    npu.synchronize()
    np.from_dlpack(p)


def racy_function_applied_too_early():
    "host-write"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    p.apply_(abs)  # second: apply_


def racy_function_reads_another_tensor_too_early():
    "host-read"
    p, x = _pinned(), torch.ones(N, device="npu")
    p.copy_(x, non_blocking=True)  # first: memcpy
    torch.zeros(N).map_(p, lambda a, b: b)  # second: map_
