"""Errors: at the call in PyTorch's words, or later and sticky."""

from __future__ import annotations

import itertools
import re
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


def test_a_late_error_names_operator_stream_and_task(failed):
    with pytest.raises(IndexError) as caught:
        torch.npu.synchronize()

    text = str(caught.value)
    assert "index out of range" in text
    for part in ("embedding", "npu:0", "stream 0", "task "):
        assert part in text


def test_it_stays_until_cleared(failed):
    x = torch.empty(0)
    for _ in range(2):
        with pytest.raises(IndexError):
            torch.npu.synchronize()
    with pytest.raises(IndexError):
        x = torch.ones(2, device="npu")
    with pytest.raises(IndexError):
        torch.npu.current_stream().synchronize()

    torch.npu.clear_error()

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


def test_a_healthy_stream_has_no_error():
    assert torch.npu.stream_error() is None


def test_reading_a_value_raises_it(failed):
    with pytest.raises(IndexError):
        torch.ones(2, device="npu").sum().item()


def test_another_stream_is_not_concerned(failed):
    other = torch.npu.Stream()

    with torch.npu.stream(other):
        x = torch.ones(2, device="npu") + 1
        other.synchronize()
        assert x.tolist() == [2.0, 2.0]


def test_waiting_for_an_event_of_a_failed_stream_raises(failed):
    with pytest.raises(IndexError):
        event = torch.npu.Event()
        event.record()
        event.synchronize()


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


def test_out_of_memory_tells_the_sizes():
    with pytest.raises(torch.OutOfMemoryError) as caught:
        torch.empty(1 << 50, dtype=torch.uint8, device="npu")

    text = str(caught.value)
    assert "Tried to allocate" in text
    assert "total capacity" in text
    assert torch.npu.OutOfMemoryError is torch.OutOfMemoryError


def test_out_of_memory_leaves_the_stream_healthy():
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="npu")

    assert torch.ones(2, device="npu").sum().item() == 2


WRONG_CALLS = {
    "broadcast": lambda d: torch.add(torch.ones(2, device=d), torch.ones(3, device=d)),
    "mm shape": lambda d: torch.ones(2, 3, device=d) @ torch.ones(2, 3, device=d),
    "mm dtype": lambda d: torch.mm(
        torch.ones(2, 2, device=d), torch.ones(2, 2, device=d, dtype=torch.int64)
    ),
    "cat": lambda d: torch.cat(
        (torch.ones(2, 2, device=d), torch.ones(2, 3, device=d))
    ),
    "view": lambda d: torch.ones(6, device=d).view(4),
    "reduce dim": lambda d: torch.ones(2, device=d).sum(3),
    "cast in place": lambda d: torch.ones(2, device=d, dtype=torch.int64).add_(1.5),
    "linear": lambda d: F.linear(
        torch.ones(2, 3, device=d), torch.ones(4, 5, device=d)
    ),
    "softmax dtype": lambda d: torch.softmax(
        torch.ones(2, device=d, dtype=torch.int64), 0
    ),
    "conv": lambda d: F.conv2d(
        torch.ones(1, 2, 4, 4, device=d), torch.ones(1, 3, 3, 3, device=d)
    ),
}


@pytest.mark.parametrize("call", WRONG_CALLS.values(), ids=list(WRONG_CALLS))
def test_a_wrong_call_raises_at_once_in_pytorchs_words(call):
    with pytest.raises(Exception) as expected:
        call("cpu")

    with pytest.raises(type(expected.value)) as caught:
        call("npu")

    text = re.sub(r"\bnpu\b", "cpu", str(caught.value))
    assert text.splitlines()[0] == str(expected.value).splitlines()[0]


def test_mixed_devices_raise_at_once():
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, device="npu") + torch.ones(2)
