"""Functions that jiterator compiles: each reads its tensors and writes its results."""

import functools

import torch

npu = torch.npu


@functools.cache
def _cube():
    return npu.jiterator._create_jit_fn(
        "template <typename T> T cube(T x) { return x * x * x; }"
    )


def _two_streams():
    _cube()(torch.ones(1, device="npu"))  # compiled
    one, two = npu.Stream(), npu.Stream()
    npu.synchronize()
    return one, two


def racy_function_reads_what_another_stream_writes():
    "read/write"
    x = torch.ones(1000, device="npu")
    one, two = _two_streams()
    with npu.stream(one):
        x.mul_(2)  # first: aten::mul_.Scalar|aten::mul_.Tensor
    with npu.stream(two):
        _cube()(x)  # second: jiterator::cube


def racy_result_is_read_by_another_stream():
    "read/write"
    x = torch.ones(1000, device="npu")
    one, two = _two_streams()
    with npu.stream(one):
        y = _cube()(x)  # first: jiterator::cube
    y.record_stream(two)
    with npu.stream(two):
        y.sum()  # second: aten::sum.dim_IntList


def correct_function_waits_for_the_stream_that_writes():
    x = torch.ones(1000, device="npu")
    one, two = _two_streams()
    with npu.stream(one):
        x.mul_(2)
    two.wait_stream(one)
    with npu.stream(two):
        _cube()(x)
    npu.synchronize()


def correct_function_reads_the_columns_between_those_that_are_written():
    x = torch.ones(64, 8, device="npu")
    one, two = _two_streams()
    with npu.stream(one):
        x[:, 0::2].mul_(2)
    with npu.stream(two):
        _cube()(x[:, 1::2])
        _cube()(x[:, 1:2].expand(64, 100))
    npu.synchronize()
