"""torch.npu streams: which one is current, and what waits for what."""

import pytest
import torch

from npu_dispatch import npu
from tests.ecosystem.both import in_threads


def test_a_stream_is_a_torch_stream_on_its_device():
    stream = torch.npu.Stream()

    assert isinstance(stream, torch.Stream)
    assert stream.device == torch.device("npu", 0)
    assert stream.device_type == 20


@pytest.mark.parametrize("make", [torch.npu.stream, lambda stream: stream])
def test_a_context_makes_a_stream_current_and_restores_the_old_one(make):
    outer, inner = torch.npu.Stream(), torch.npu.Stream()

    with pytest.raises(KeyError), make(outer):
        with make(inner):
            assert torch.npu.current_stream() == inner
        assert torch.npu.current_stream() == outer
        raise KeyError

    assert torch.npu.current_stream() == torch.npu.default_stream()


def test_none_is_a_context_that_changes_nothing():
    with torch.npu.stream(None):
        assert torch.npu.current_stream() == torch.npu.default_stream()
        assert torch.npu.default_stream().stream_id == 0


def test_set_stream_is_per_thread():
    stream, seen = torch.npu.Stream(), []
    torch.npu.set_stream(stream)

    in_threads(lambda: seen.append(torch.npu.current_stream()))

    assert torch.npu.current_stream() == stream
    assert seen == [torch.npu.default_stream()]


def test_priority_selects_the_pool():
    assert torch.npu.Stream(priority=-1).priority == -1
    assert torch.npu.Stream().priority == 0
    assert torch.npu.Stream.priority_range() == (0, -1)


def test_a_stream_is_rebuilt_from_its_id():
    stream = torch.npu.Stream()

    again = torch.npu.Stream(stream_id=stream.stream_id, device_index=0, device_type=20)

    assert again == stream
    assert hash(again) == hash(stream)


def test_a_sync_launch_stream_is_stream_like_but_no_stream():
    stream = torch.npu.SyncLaunchStream()

    assert not isinstance(stream, torch.npu.Stream)
    assert isinstance(stream, torch.Stream)


def test_work_on_a_sync_launch_stream_is_done_when_the_call_returns():
    stream = torch.npu.SyncLaunchStream()

    with torch.npu.stream(stream):
        x = torch.ones(4, device="npu") + 1
        assert torch.npu.current_stream().stream_id == stream.stream_id
        assert stream.query()

    assert x.tolist() == [2.0] * 4


def test_an_id_that_is_no_number_of_64_bits_or_of_another_device_is_refused():
    with pytest.raises(OverflowError, match="stream_id"):
        torch.npu.Stream(stream_id=1 << 70, device_index=0, device_type=20)
    with pytest.raises(RuntimeError, match="device_type"):
        torch.npu.Stream(stream_id=0, device_index=0, device_type=1)
    with pytest.raises(RuntimeError, match="12345"):
        torch.npu.Stream(stream_id=12345, device_index=0)


@pytest.mark.parametrize("use", [npu.set_stream, lambda s: npu.stream(s).__enter__()])
def test_what_is_no_stream_is_a_type_error(use):
    with pytest.raises(TypeError, match="stream"):
        use(3)


def test_a_context_may_be_entered_again_inside_itself():
    before, context = torch.npu.current_stream(), torch.npu.stream(torch.npu.Stream())

    with context:
        inside = torch.npu.current_stream()
        with context:
            assert torch.npu.current_stream() == inside
        assert torch.npu.current_stream() == inside
    assert torch.npu.current_stream() == before


def test_a_stream_is_not_what_is_no_stream():
    stream = torch.npu.Stream()

    assert stream != None and stream != 1  # noqa: E711
    assert (stream != stream) is False


def test_a_sync_launch_stream_that_is_current_equals_the_current_one():
    stream = torch.npu.SyncLaunchStream()

    with torch.npu.StreamContext(stream):
        current = torch.npu.current_stream()
        assert current == stream and stream == current
        assert hash(current) == hash(stream)
    assert torch.npu.current_stream() != stream
