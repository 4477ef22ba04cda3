"""What has failed on the device stays an error of its stream until it is cleared."""

from __future__ import annotations

import itertools
import sys

import pytest
import torch
import torch.nn.functional as F
from held_stream import Held


@pytest.fixture
def failed():
    """The default stream, failed by an embedding index out of range."""
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    torch.npu.synchronize()
    F.embedding(index, weight)
    yield
    torch.npu.clear_error()


def test_it_stays_until_cleared(failed):
    x = torch.empty(0)
    for _ in range(2):
        with pytest.raises(IndexError):
            torch.npu.synchronize()
    with pytest.raises(IndexError):
        x = torch.ones(2, device="npu")
    with pytest.raises(IndexError):
        torch.npu.current_stream().synchronize()
    assert torch.npu.stream_error() is not None

    torch.npu.clear_error()

    assert torch.npu.stream_error() is None

    x = torch.ones(2, device="npu")
    assert x.sum().item() == 2


def test_stream_error_describes_it(failed):
    with pytest.raises(IndexError):
        torch.npu.synchronize()

    error = torch.npu.stream_error()

    assert error is not None
    assert "embedding" in error["op"]
    assert error["stream"] == 0
    assert "out of range" in error["text"]


def test_the_message_names_the_stream_that_is_to_be_cleared():
    side = torch.npu.Stream()
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        F.embedding(index, weight)
    with pytest.raises(IndexError) as caught:
        side.synchronize()
    torch.npu.clear_error()  # of the current stream, which has not failed
    assert torch.npu.stream_error(side) is not None
    assert f"Stream {side.stream_id} of npu:0 accepts no more" in str(caught.value)

    torch.npu.clear_error(side)

    side.synchronize()


def test_another_stream_is_not_concerned(failed):
    other = torch.npu.Stream()

    with torch.npu.stream(other):
        x = torch.ones(2, device="npu") + 1
        other.synchronize()
        assert x.tolist() == [2.0, 2.0]


@pytest.mark.parametrize("hops", [1, 2])
def test_a_stream_that_waited_names_what_failed_first_and_its_line(hops):
    weight, index = torch.rand(4, 2).npu(), torch.tensor([9]).npu()
    streams = [torch.npu.Stream() for _ in range(hops + 1)]
    streams[0].wait_stream(torch.npu.current_stream())
    # Held: a stream that is known to have failed accepts no event.
    with Held(streams[0]):
        with torch.npu.stream(streams[0]):
            F.embedding(index, weight)
            line = sys._getframe().f_lineno - 1
        for before, behind in itertools.pairwise(streams):
            behind.wait_stream(before)

    with pytest.raises(IndexError) as caught:
        streams[-1].synchronize()

    text, cause = str(caught.value), caught.value.__cause__
    assert f"launched at {__file__}:{line}" in text
    assert text.count("which has failed") == 1
    assert (cause.op, cause.stream) == ("aten::embedding", streams[0].stream_id)
    assert (__file__, line) in [(f.filename, f.lineno) for f in cause.launch_stack]
    for stream in streams:
        torch.npu.clear_error(stream)


def test_out_of_memory_leaves_the_stream_healthy():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="npu")

    assert torch.ones(2, device="npu").sum().item() == 2
