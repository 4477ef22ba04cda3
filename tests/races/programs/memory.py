"""Blocks that the allocator gives out again, and memory that is gone."""

import torch

npu = torch.npu


def racy_freed_while_another_stream_reads():
    "allocator-reuse"
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x * 2  # first: aten::mul.Tensor
    del x
    z = torch.zeros(1000, device="npu")  # second: aten::zero_
    return y, z


def correct_recorded_before_it_was_freed():
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x * 2
    x.record_stream(s)
    del x
    z = torch.zeros(1000, device="npu")
    npu.synchronize()
    return y, z


def racy_recorded_with_the_wrong_stream():
    "allocator-reuse"
    s, other = npu.Stream(), npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x * 2  # first: aten::mul.Tensor
    x.record_stream(other)
    del x
    z = torch.zeros(1000, device="npu")  # second: aten::zero_
    return y, z


def correct_waited_for_before_it_was_freed():
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x * 2
    npu.current_stream().wait_stream(s)
    del x
    z = torch.zeros(1000, device="npu")
    return y, z


def correct_waited_for_before_it_was_used_again():
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x * 2
    del x
    npu.current_stream().wait_stream(s)
    z = torch.zeros(1000, device="npu")
    return y, z


def correct_freed_on_the_stream_that_used_it():
    s = npu.Stream()
    with npu.stream(s):
        x = torch.ones(1000, device="npu")
        y = x * 2
        del x
        z = torch.zeros(1000, device="npu")
    npu.synchronize()
    return y, z


def racy_freed_while_another_stream_writes():
    "allocator-reuse"
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        x.add_(1)  # first: aten::add_.Tensor
    del x
    z = torch.zeros(1000, device="npu")  # second: aten::zero_
    return z  # noqa: RET504


def racy_result_of_a_side_stream_freed_there():
    "allocator-reuse"
    s = npu.Stream()
    with npu.stream(s):
        x = torch.ones(1000, device="npu")
    npu.current_stream().wait_stream(s)
    y = x * 2  # first: aten::mul.Tensor
    del x
    with npu.stream(s):
        z = torch.zeros(1000, device="npu")  # second: aten::zero_
    npu.synchronize()
    return y, z


def correct_result_of_a_side_stream_recorded():
    s = npu.Stream()
    with npu.stream(s):
        x = torch.ones(1000, device="npu")
    npu.current_stream().wait_stream(s)
    y = x * 2
    x.record_stream(npu.current_stream())
    del x
    with npu.stream(s):
        z = torch.zeros(1000, device="npu")
    npu.synchronize()
    return y, z


def racy_new_tensor_used_on_another_stream_at_once():
    "allocator-reuse"
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    x.mul_(2)  # first: aten::mul_.Tensor
    del x
    y = torch.empty(1000, device="npu")
    with npu.stream(s):
        y.fill_(1)  # second: aten::fill_.Scalar
    npu.synchronize()


def correct_new_tensor_used_after_a_wait():
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    x.mul_(2)
    del x
    y = torch.empty(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y.fill_(1)
    npu.synchronize()


def racy_grown_storage_leaves_the_old_block():
    "allocator-reuse"
    s = npu.Stream()
    x = torch.ones(1000, device="npu")
    s.wait_stream(npu.current_stream())
    with npu.stream(s):
        y = x * 2  # first: aten::mul.Tensor
    x.resize_(5000)
    z = torch.zeros(1000, device="npu")  # second: aten::zero_
    npu.synchronize()
    return y, z


def _alias(x):
    """Return a tensor over the same memory that does not keep it."""
    storage = torch._C._construct_storage_from_data_pointer(
        x.data_ptr(), x.device, x.untyped_storage().nbytes()
    )
    return torch.empty(0, device=x.device).set_(storage).view(x.dtype)


def racy_pointer_kept_longer_than_the_tensor():
    "use-after-free"
    x = torch.ones(1000, device="npu")
    y = _alias(x)
    del x  # first: free
    y.fill_(1)  # second: aten::fill_.Scalar


def correct_pointer_kept_as_long_as_the_tensor():
    x = torch.ones(1000, device="npu")
    y = _alias(x)
    y.fill_(1)
    return x
