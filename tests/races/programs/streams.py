"""Kernels of different streams on one tensor: what orders them and what not."""

import torch

npu = torch.npu


def racy_second_stream_writes_at_once():
    "write/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    with npu.stream(s):
        x.add_(1)  # second: aten::add_.Tensor


def correct_second_stream_waits_for_the_first():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.add_(1)
    npu.current_stream().wait_stream(s)
    x.add_(1)


def racy_second_stream_reads_at_once():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    with npu.stream(s):
        x + 1  # second: aten::add.Tensor


def correct_second_stream_reads_after_an_event():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    done = npu.current_stream().record_event()
    s.wait_event(done)
    with npu.stream(s):
        y = x + 1
    npu.synchronize()
    return y


def racy_write_after_an_unfinished_read():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x + 1  # first: aten::add.Tensor
    x.zero_()  # second: aten::zero_
    return y


def correct_write_after_the_reader_was_waited_for():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x + 1
    npu.current_stream().wait_stream(s)
    x.zero_()
    return y


def correct_two_streams_read_one_tensor():
    one, two = npu.Stream(), npu.Stream()
    x = torch.ones(100, device="npu")
    npu.synchronize()
    with npu.stream(one):
        y = x + 1
    with npu.stream(two):
        z = x + 2
    npu.synchronize()
    return y, z


def racy_event_recorded_before_the_write():
    "read/write"
    s = npu.Stream()
    x = torch.empty(100, device="npu")
    early = npu.current_stream().record_event()
    x.fill_(1)  # first: aten::fill_.Scalar
    s.wait_event(early)
    with npu.stream(s):
        x + 1  # second: aten::add.Tensor


def correct_event_recorded_again_after_the_write():
    s = npu.Stream()
    x = torch.empty(100, device="npu")
    event = npu.current_stream().record_event()
    x.fill_(1)
    event.record()
    s.wait_event(event)
    with npu.stream(s):
        y = x + 1
    npu.synchronize()
    return y


def racy_event_waited_for_by_another_stream():
    "read/write"
    one, two = npu.Stream(), npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    one.wait_event(npu.current_stream().record_event())
    with npu.stream(two):
        x + 1  # second: aten::add.Tensor


def correct_order_goes_through_a_third_stream():
    one, two = npu.Stream(), npu.Stream()
    x = torch.ones(100, device="npu")
    one.wait_stream(npu.current_stream())
    two.wait_stream(one)
    with npu.stream(two):
        y = x + 1
    npu.synchronize()
    return y


def racy_chain_of_waits_broken_in_the_middle():
    "read/write"
    one, two = npu.Stream(), npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    seen = one.record_event()
    one.wait_stream(npu.current_stream())
    two.wait_event(seen)
    with npu.stream(two):
        x + 1  # second: aten::add.Tensor


def racy_wait_the_wrong_way_round():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    npu.current_stream().wait_stream(s)
    with npu.stream(s):
        x + 1  # second: aten::add.Tensor


def racy_event_that_was_never_recorded():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    s.wait_event(npu.Event())
    with npu.stream(s):
        x + 1  # second: aten::add.Tensor


def correct_host_waits_for_the_stream():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    npu.current_stream().synchronize()
    with npu.stream(s):
        x.add_(1)
    s.synchronize()
    x.add_(1)


def correct_host_waits_for_the_device():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    npu.synchronize()
    with npu.stream(s):
        x.add_(1)
    npu.synchronize()
    x.add_(1)


def correct_host_waits_for_an_event():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    npu.current_stream().record_event().synchronize()
    with npu.stream(s):
        x.add_(1)
    npu.synchronize()


def racy_host_waits_for_an_earlier_event():
    "write/write"
    s = npu.Stream()
    x = torch.empty(100, device="npu")
    early = npu.current_stream().record_event()
    x.fill_(1)  # first: aten::fill_.Scalar
    early.synchronize()
    with npu.stream(s):
        x.add_(1)  # second: aten::add_.Tensor


def racy_host_waits_for_another_stream():
    "write/write"
    one, two = npu.Stream(), npu.Stream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    one.synchronize()
    with npu.stream(two):
        x.add_(1)  # second: aten::add_.Tensor


def correct_host_polls_until_it_is_done():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    event = npu.current_stream().record_event()
    while not event.query():
        pass
    with npu.stream(s):
        x.add_(1)
    while not s.query():
        pass
    x.add_(1)


def correct_item_orders_what_follows():
    s = npu.Stream()
    x = torch.ones(1, device="npu")
    x.item()
    with npu.stream(s):
        x.add_(1)
    npu.synchronize()


def racy_item_on_the_wrong_stream():
    "read/write"
    s = npu.Stream()
    x = torch.ones(1, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.add_(1)  # first: aten::add_.Tensor
    x.item()  # second: aten::_local_scalar_dense


def racy_copy_to_host_on_the_wrong_stream():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.add_(1)  # first: aten::add_.Tensor
    x.cpu()  # second: aten::copy_|memcpy


def correct_copy_to_host_on_the_right_stream():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.add_(1)
        x.cpu()


def racy_copy_from_host_into_a_tensor_in_use():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x + 1  # first: aten::add.Tensor
    x.copy_(torch.zeros(100))  # second: memcpy
    return y


def racy_operator_that_waits_for_one_stream_only():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.add_(1)  # first: aten::add_.Tensor
    x.nonzero()  # second: aten::nonzero


def racy_equal_on_the_wrong_stream():
    "read/write"
    s = npu.Stream()
    x, y = torch.ones(100, device="npu"), torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y.add_(1)  # first: aten::add_.Tensor
    torch.equal(x, y)  # second: aten::equal


def racy_out_argument():
    "write/write"
    s = npu.Stream()
    x, out = torch.ones(100, device="npu"), torch.empty(100, device="npu")
    torch.add(x, 1, out=out)  # first: aten::add.out
    s.wait_event(npu.Event())
    with npu.stream(s):
        out.fill_(0)  # second: aten::fill_.Scalar


def correct_out_argument():
    s = npu.Stream()
    x, out = torch.ones(100, device="npu"), torch.empty(100, device="npu")
    torch.add(x, 1, out=out)
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        out.fill_(0)
    npu.synchronize()


def racy_inline_stream():
    "write/write"
    s = npu.SyncLaunchStream()
    x = torch.ones(100, device="npu")  # first: aten::fill_.Scalar
    with s:
        x.add_(1)  # second: aten::add_.Tensor


def correct_inline_stream_is_done_when_it_returns():
    s = npu.SyncLaunchStream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    with s:
        x.add_(1)
    x.add_(1)


def correct_launch_blocking_orders_everything():
    s = npu.Stream()
    with npu.launch_blocking():
        x = torch.ones(100, device="npu")
        with npu.stream(s):
            x.add_(1)
