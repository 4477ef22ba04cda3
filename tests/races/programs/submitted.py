"""Python functions in a stream's queue, and the host tensors they are given."""

import torch

npu = torch.npu


def add_one(t):
    t.add_(1)


def read(t):
    t.sum()


def _pinned():
    return torch.zeros(100).pin_memory()


def racy_host_reads_what_a_function_writes():
    "host-read"
    p, s = _pinned(), npu.Stream()
    s.submit(add_one, p)  # first: add_one
    p.sum()  # second: aten::sum.dim_IntList


def racy_host_writes_what_a_function_reads():
    "host-write"
    p, s = _pinned(), npu.Stream()
    s.submit(read, p, writes=[])  # first: read
    p.fill_(1)  # second: aten::fill_.Scalar


def correct_host_reads_what_a_function_reads():
    p, s = _pinned(), npu.Stream()
    s.submit(read, p, writes=[])
    p.sum()
    npu.synchronize()


def correct_host_reads_after_the_function():
    p, s = _pinned(), npu.Stream()
    s.submit(add_one, p)
    s.synchronize()
    p.sum()


def racy_functions_on_two_streams_write_one_host_tensor():
    "unordered-foreign-launch"
    p, s, t = _pinned(), npu.Stream(), npu.Stream()
    s.submit(add_one, p)  # first: add_one
    t.submit(add_one, p)  # second: add_one


def correct_functions_on_two_streams_in_order():
    p, s, t = _pinned(), npu.Stream(), npu.Stream()
    s.submit(add_one, p)
    t.wait_stream(s)
    t.submit(add_one, p)
    npu.synchronize()


def racy_host_reads_an_ordinary_tensor_that_a_function_writes():
    "host-read"
    t, s = torch.zeros(100), npu.Stream()
    s.submit(add_one, t)  # first: add_one
    t.sum()  # second: aten::sum.dim_IntList


def racy_functions_on_two_streams_write_one_ordinary_tensor():
    "unordered-foreign-launch"
    t, one, two = torch.zeros(100), npu.Stream(), npu.Stream()
    one.submit(add_one, t[:51])  # first: add_one
    two.submit(add_one, t[50:])  # second: add_one


def correct_functions_on_two_streams_write_halves():
    t, one, two = torch.zeros(100), npu.Stream(), npu.Stream()
    one.submit(add_one, t[:50])
    two.submit(add_one, t[50:])
    npu.synchronize()
    t.sum()


def correct_new_tensors_where_others_were():
    s = npu.Stream()
    for _ in range(20):
        s.submit(add_one, torch.zeros(100))
        torch.zeros(100).sum()
    s.synchronize()
    for _ in range(20):
        torch.zeros(100).sum()
