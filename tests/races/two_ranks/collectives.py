"""Collectives of two ranks: what `wait()` and streams order, and what not.

Each rank runs all of these. Where only one of them is at fault, the docstring says
which.
"""

import torch
import torch.distributed as dist
from torch.distributed import (
    all_gather_into_tensor as gather_into,
    all_to_all_single as all_to_all,
    reduce_scatter_tensor as scatter_sum,
)

from npu_dispatch.stats import StatsReader, segment_file

npu = torch.npu


def _ones(n=1000):
    t = torch.ones(n, device="npu")
    npu.synchronize()
    return t


def _until_all_is_over():
    """Without asking any stream, which would be an order."""
    with StatsReader(segment_file()) as reader:
        while any(s.retired < s.submitted for s in reader.streams()):
            pass


def racy_result_read_before_the_wait():
    "unordered-collective"
    t = _ones()
    work = dist.all_reduce(t, async_op=True)  # first: hccl:all_reduce
    doubled = t * 2  # second: aten::mul.Tensor
    work.wait()
    return doubled


def correct_result_read_after_the_wait():
    t = _ones()
    dist.all_reduce(t, async_op=True).wait()
    return t * 2


def correct_synchronous_call():
    t = torch.ones(1000, device="npu")
    dist.all_reduce(t)
    return t * 2


def racy_input_written_before_the_wait():
    "unordered-collective"
    t, out = _ones(), torch.empty(2000, device="npu")
    work = gather_into(out, t, async_op=True)  # first: hccl:all_gather_into_tensor
    t.zero_()  # second: aten::zero_
    work.wait()


def correct_input_written_after_the_wait():
    t, out = _ones(), torch.empty(2000, device="npu")
    gather_into(out, t, async_op=True).wait()
    t.zero_()


def correct_input_read_before_the_wait():
    t, out = _ones(), torch.empty(2000, device="npu")
    work = gather_into(out, t, async_op=True)
    doubled = t * 2
    work.wait()
    return doubled


def correct_input_freed_before_the_wait():
    out = torch.empty(2000, device="npu")
    work = gather_into(out, torch.ones(1000, device="npu"), async_op=True)
    fresh = torch.zeros(1000, device="npu")
    work.wait()
    return fresh


def racy_output_overwritten_before_the_wait():
    "unordered-collective"
    t, out = _ones(), torch.empty(2000, device="npu")
    work = gather_into(out, t, async_op=True)  # first: hccl:all_gather_into_tensor
    out.fill_(7)  # second: aten::fill_.Scalar
    work.wait()


def racy_part_of_the_output_overwritten_before_the_wait():
    "unordered-collective"
    t, out = _ones(), torch.empty(2000, device="npu")
    work = gather_into(out, t, async_op=True)  # first: hccl:all_gather_into_tensor
    out[1500:].fill_(7)  # second: aten::fill_.Scalar
    work.wait()


def correct_other_half_of_the_memory():
    both = _ones(2000)
    work = dist.all_reduce(both[:1000], async_op=True)
    both[1000:].fill_(7)
    work.wait()
    return both.sum()


def racy_result_to_the_host_before_the_wait():
    "unordered-collective"
    t = _ones()
    work = dist.all_reduce(t, async_op=True)  # first: hccl:all_reduce
    t.cpu()  # second: aten::copy_|memcpy
    work.wait()


def correct_result_to_the_host_after_the_wait():
    t = _ones()
    dist.all_reduce(t, async_op=True).wait()
    return t.cpu()


def racy_wait_on_another_stream_than_the_reader():
    "unordered-collective"
    t, side = _ones(), npu.Stream()
    work = dist.all_reduce(t, async_op=True)  # first: hccl:all_reduce
    work.wait()
    with npu.stream(side):
        t * 2  # second: aten::mul.Tensor


def correct_wait_on_the_stream_of_the_reader():
    t, side = _ones(), npu.Stream()
    work = dist.all_reduce(t, async_op=True)
    with npu.stream(side):
        work.wait()
        doubled = t * 2
    npu.current_stream().wait_stream(side)
    return doubled


def correct_reader_waits_for_the_stream_that_has_waited():
    t, side = _ones(), npu.Stream()
    dist.all_reduce(t, async_op=True).wait()
    side.wait_stream(npu.current_stream())
    with npu.stream(side):
        doubled = t * 2
    npu.current_stream().wait_stream(side)
    return doubled


def racy_stream_waits_for_the_caller_but_not_the_work():
    "unordered-collective"
    t, side = _ones(), npu.Stream()
    work = dist.all_reduce(t, async_op=True)  # first: hccl:all_reduce
    side.wait_stream(npu.current_stream())
    with npu.stream(side):
        t * 2  # second: aten::mul.Tensor
    work.wait()


def racy_input_of_another_stream_without_an_event():
    "unordered-collective"
    t, side = _ones(), npu.Stream()
    with npu.stream(side):
        t.mul_(2)  # first: aten::mul_.Tensor
    work = dist.all_reduce(t, async_op=True)  # second: hccl:all_reduce
    work.wait()


def racy_input_of_another_stream_in_a_synchronous_call():
    "unordered-collective"
    t, side = _ones(), npu.Stream()
    with npu.stream(side):
        t.mul_(2)  # first: aten::mul_.Tensor
    dist.all_reduce(t)  # second: hccl:all_reduce


def correct_input_of_another_stream_behind_an_event():
    t, side = _ones(), npu.Stream()
    with npu.stream(side):
        t.mul_(2)
        ready = side.record_event()
    ready.wait()
    dist.all_reduce(t, async_op=True).wait()
    return t


def racy_synchronous_call_on_a_side_stream():
    "unordered-collective"
    t, side = _ones(), npu.Stream()
    with npu.stream(side):
        dist.all_reduce(t)  # first: hccl:all_reduce
    t.mul_(2)  # second: aten::mul_.Tensor


def correct_synchronous_call_on_a_side_stream():
    t, side = _ones(), npu.Stream()
    with npu.stream(side):
        dist.all_reduce(t)
    npu.current_stream().wait_stream(side)
    t.mul_(2)


def racy_record_stream_forgotten_after_a_call_on_a_side_stream():
    "allocator-reuse"
    t, side = torch.ones(1000, device="npu"), npu.Stream()
    side.wait_stream(npu.current_stream())
    with npu.stream(side):
        dist.all_reduce(t)  # first: hccl:all_reduce
    del t
    torch.zeros(1000, device="npu")  # second: aten::zero_


def correct_record_stream_after_a_call_on_a_side_stream():
    t, side = torch.ones(1000, device="npu"), npu.Stream()
    side.wait_stream(npu.current_stream())
    with npu.stream(side):
        dist.all_reduce(t)
    t.record_stream(side)
    del t
    return torch.zeros(1000, device="npu")


def racy_record_stream_forgotten_where_the_work_was_waited_for():
    "allocator-reuse"
    t, side = torch.ones(1000, device="npu"), npu.Stream()
    work = dist.all_reduce(t, async_op=True)
    with npu.stream(side):
        work.wait()
        doubled = t * 2  # first: aten::mul.Tensor
    # Else the block would not be given out again yet, and nothing would be wrong.
    while not work.is_completed():
        pass
    del t, work
    torch.zeros(1000, device="npu")  # second: aten::zero_
    return doubled


def correct_record_stream_where_the_work_was_waited_for():
    t, side = torch.ones(1000, device="npu"), npu.Stream()
    work = dist.all_reduce(t, async_op=True)
    with npu.stream(side):
        work.wait()
        doubled = t * 2
    t.record_stream(side)
    del t, work
    zeros = torch.zeros(1000, device="npu")
    return doubled, zeros


def racy_broadcast_read_before_the_wait():
    "unordered-collective on rank 1"
    t = _ones()
    work = dist.broadcast(t, 0, async_op=True)  # first: hccl:broadcast
    t + 1  # second: aten::add.Tensor
    work.wait()


def racy_broadcast_written_before_the_wait():
    "unordered-collective"
    t = _ones()
    work = dist.broadcast(t, 0, async_op=True)  # first: hccl:broadcast
    t.add_(1)  # second: aten::add_.Tensor
    work.wait()


def correct_broadcast_waited_for():
    t = _ones()
    dist.broadcast(t, 0, async_op=True).wait()
    t.add_(1)


def racy_reduce_scatter_read_before_the_wait():
    "unordered-collective"
    out, t = torch.empty(1000, device="npu"), _ones(2000)
    work = scatter_sum(out, t, async_op=True)  # first: hccl:reduce_scatter_tensor
    out + 1  # second: aten::add.Tensor
    work.wait()


def correct_reduce_scatter_reads_what_others_read():
    out, t = torch.empty(1000, device="npu"), _ones(2000)
    work = scatter_sum(out, t, async_op=True)
    total = t.sum()
    work.wait()
    return total, out + 1


def racy_one_of_gathered_tensors_read_before_the_wait():
    "unordered-collective"
    t, out = _ones(), [torch.empty(1000, device="npu") for _ in range(2)]
    work = dist.all_gather(out, t, async_op=True)  # first: hccl:all_gather
    out[1] + 1  # second: aten::add.Tensor
    work.wait()


def correct_gathered_tensors_waited_for():
    t, out = _ones(), [torch.empty(1000, device="npu") for _ in range(2)]
    dist.all_gather(out, t, async_op=True).wait()
    return out[0] + out[1]


def racy_all_to_all_read_before_the_wait():
    "unordered-collective"
    out, t = torch.empty(1000, device="npu"), _ones()
    work = all_to_all(out, t, async_op=True)  # first: hccl:all_to_all_single
    out + 1  # second: aten::add.Tensor
    work.wait()


def racy_coalesced_read_before_the_wait():
    "unordered-collective"
    a, b = _ones(), _ones()
    together = dist._coalescing_manager(device=torch.device("npu"), async_ops=True)
    with together as all_of_them:  # first: hccl:all_reduce
        dist.all_reduce(a)
        dist.all_reduce(b)
    b + 1  # second: aten::add.Tensor
    all_of_them.wait()


def correct_coalesced_waited_for():
    a, b = _ones(), _ones()
    together = dist._coalescing_manager(device=torch.device("npu"), async_ops=True)
    with together as all_of_them:
        dist.all_reduce(a)
        dist.all_reduce(b)
    all_of_them.wait()
    return a + b


def racy_two_groups_reduce_one_tensor():
    "unordered-collective"
    t = _ones()
    one = dist.all_reduce(t, async_op=True)  # first: hccl:all_reduce
    two = dist.all_reduce(t, group=other, async_op=True)  # second: hccl:all_reduce
    one.wait()
    two.wait()


def racy_two_groups_though_the_first_is_over():
    "unordered-collective"
    t = _ones()
    one = dist.all_reduce(t, async_op=True)  # first: hccl:all_reduce
    _until_all_is_over()
    two = dist.all_reduce(t, group=other, async_op=True)  # second: hccl:all_reduce
    one.wait()
    two.wait()


def correct_two_groups_one_after_the_other():
    t = _ones()
    dist.all_reduce(t, async_op=True).wait()
    dist.all_reduce(t, group=other, async_op=True).wait()
    return t


def correct_one_group_reduces_a_tensor_twice():
    t = _ones()
    dist.all_reduce(t, async_op=True)
    dist.all_reduce(t, async_op=True).wait()
    return t * 2


def correct_two_groups_read_one_tensor():
    t = _ones()
    outs = [torch.empty(2000, device="npu") for _ in range(2)]
    one = gather_into(outs[0], t, async_op=True)
    two = gather_into(outs[1], t, group=other, async_op=True)
    one.wait()
    two.wait()
    return outs[0] + outs[1]


def correct_callback_of_a_future():
    future = dist.all_reduce(_ones(), async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2).wait()
    return doubled + 1


def correct_host_waits_for_the_device():
    t = _ones()
    dist.all_reduce(t, async_op=True)
    npu.synchronize()
    return t * 2


def correct_work_seen_to_be_completed():
    t = _ones()
    work = dist.all_reduce(t, async_op=True)
    while not work.is_completed():
        pass
    return t * 2


def correct_wait_with_a_timeout():
    from datetime import timedelta

    t = _ones()
    dist.all_reduce(t, async_op=True).wait(timedelta(seconds=60))
    return t * 2


other = None  # a second group of both ranks, which the test makes
