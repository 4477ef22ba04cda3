"""to_host, run, synchronize and QueueLimit."""

import asyncio
import collections
import dataclasses
import functools
import traceback
import types

import pytest
import torch

from npu_dispatch import _C, aio


def waits():
    """How often a host thread has waited for the device."""
    from npu_dispatch.observe.segment import StatsReader, segment_file

    with StatsReader(segment_file()) as reader:
        return sum(sum(device.waits.values()) for device in reader.devices())


def layouts():
    x = torch.arange(24.0).reshape(2, 3, 4)
    return {
        "dense": x,
        "transposed": x.transpose(0, 2),
        "with gaps": x[:, :, ::2],
        "expanded": x[0, 0].expand(5, 4),
        "empty": x[:0],
        "scalar": x[0, 0, 0],
        "half": x.half(),
        "conjugate": torch.complex(x, -x).conj(),
    }


@pytest.mark.parametrize("kind", sorted(layouts()))
async def test_to_host_copies_whatever_the_layout_and_never_waits(kind):
    source = layouts()[kind]
    base = source.npu()
    if kind == "with gaps":
        base = torch.arange(24.0).reshape(2, 3, 4).npu()[:, :, ::2]
    torch.npu.synchronize()
    before = waits()
    host = await aio.to_host(base)
    assert waits() == before
    assert host.device.type == "cpu"
    assert torch.equal(host, source)


async def test_to_host_is_ordered_after_the_current_stream(stream, gate):
    with torch.npu.stream(stream):
        gate.close(stream)
        x = torch.zeros(100, device="npu") + 7
        copying = asyncio.ensure_future(aio.to_host(x))
        await asyncio.sleep(0)
    gate.open()
    assert (await copying).eq(7).all()


async def test_to_host_keeps_the_gradient():
    x = torch.ones(3, device="npu", requires_grad=True)
    (await aio.to_host(x * 2)).sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]


async def test_to_host_returns_a_host_tensor_itself():
    x = torch.ones(3)
    assert await aio.to_host(x) is x


async def test_run_returns_computed_results(stream):
    x = torch.arange(10.0, device="npu")
    y, parts = await aio.run(lambda x: (x * 2, [x + 1]), x, stream=stream)
    assert stream.query()
    z = await aio.run(torch.sub, y, parts[0])
    assert z.tolist() == [float(i * 2 - i - 1) for i in range(10)]
    for where in (None, stream):
        z = await aio.run(torch.sub, y, other=parts[0], alpha=2, stream=where)
        assert z.tolist() == [-2.0] * 10


async def test_run_raises_what_the_call_raises_and_what_the_device_found(stream):
    x = torch.zeros(2, device="npu")
    with pytest.raises(RuntimeError, match="size of tensor"):
        await aio.run(lambda: x + torch.zeros(3, device="npu"), stream=stream)
    bad = torch.tensor([9]).npu()
    with pytest.raises(IndexError):
        await aio.run(lambda: x[bad], stream=stream)
    torch.npu.clear_error(stream)
    assert torch.npu.current_stream() != stream


@dataclasses.dataclass
class Output:
    scores: torch.Tensor


class Slotted:
    __slots__ = ("scores",)

    def __init__(self, scores):
        self.scores = scores


Pair = collections.namedtuple("Pair", ["name", "scores"])
# How a tensor is put into something, and how it is read there.
HOLDERS = {
    "tensor": (lambda t: t, lambda h: h),
    "containers": (lambda t: [({"a": {"b": (t,)}},)], lambda h: h[0][0]["a"]["b"][0]),
    "named tuple": (lambda t: Pair("a", t), lambda h: h.scores),
    "ordered dict": (lambda t: collections.OrderedDict(a=t), lambda h: h["a"]),
    "user's dict": (lambda t: collections.UserDict(a=t), lambda h: h["a"]),
    "set": (lambda t: {t}, lambda h: next(iter(h))),
    "dataclass": (Output, lambda h: h.scores),
    "dataclasses": (lambda t: Output(Output([t])), lambda h: h.scores.scores[0]),
    "object": (lambda t: types.SimpleNamespace(scores=t), lambda h: h.scores),
    "object with slots": (Slotted, lambda h: h.scores),
    "partial": (lambda t: functools.partial(torch.add, t), lambda h: h.args[0]),
    "closure": (lambda t: lambda: t, lambda h: h()),
    "mapping": (lambda t: types.MappingProxyType({"a": t}), lambda h: h["a"]),
}


@pytest.mark.parametrize("kind", HOLDERS)
async def test_a_result_stays_valid_on_the_current_stream(kind, stream, gate):
    """Wherever its tensor is, and however soon the other stream wants memory."""
    make, read = HOLDERS[kind]
    result = await aio.run(
        lambda: make(torch.full((4096,), 3.0, device="npu")), stream=stream
    )
    gate.close(torch.npu.current_stream())
    copy = read(result) + 0
    del result
    with torch.npu.stream(stream):
        other = torch.zeros(4096, device="npu")  # does not get its memory
    await stream
    gate.open()

    assert copy.eq(3).all().item()
    assert other.eq(0).all().item()


@pytest.mark.parametrize("kind", ["tensor", "dataclass", "object with slots"])
async def test_a_cancelled_run_keeps_what_it_was_given(kind, stream, gate):
    make, read = HOLDERS[kind]
    holder = make(torch.full((4096,), 3.0, device="npu"))
    results = []
    gate.close(stream)
    task = asyncio.ensure_future(
        aio.run(lambda h: results.append(-read(h)), holder, stream=stream)
    )
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError) as raised:
        await task
    traceback.clear_frames(raised.tb)  # the coroutine's has the arguments
    del holder, task, raised
    torch.zeros(4096, device="npu")  # does not get the memory that is read
    gate.open()
    await stream

    assert results.pop().eq(-3).all().item()


async def test_a_function_that_raises_keeps_what_it_was_given(stream, gate):
    x = torch.full((4096,), 3.0, device="npu")
    results = []

    def fails(batch):
        results.append(-batch.scores)
        raise ValueError("behind its work")

    gate.close(stream)
    with pytest.raises(ValueError, match="behind its work"):
        await aio.run(fails, Output(x), stream=stream)
    del x
    torch.zeros(4096, device="npu")
    gate.open()
    await stream

    assert results.pop().eq(-3).all().item()


async def test_a_result_that_leads_everywhere_is_refused(stream):
    def fn():
        return Output([object() for _ in range(20_000)])

    with pytest.raises(RuntimeError, match="returned a Output that refers to more"):
        await aio.run(fn, stream=stream)
    await aio.run(fn)  # on the current stream nothing is looked for


async def test_synchronize_covers_every_stream_of_the_device(gate):
    streams = [torch.npu.Stream() for _ in range(3)]
    for stream in streams:
        gate.close(stream)
    asyncio.get_running_loop().call_soon(gate.open)
    await aio.synchronize()
    assert all(stream.query() for stream in streams)


async def test_a_queue_limit_bounds_the_unfinished_tasks(stream, gate):
    depth, jobs = 8, 200
    limit = aio.QueueLimit(depth, stream)
    key = stream.device_index, stream.stream_id
    entered = []

    async def job(number):
        async with limit:
            unfinished = _C.stream_tail(*key) - _C.stream_retired(*key)
            assert unfinished < depth
            entered.append(number)
            with torch.npu.stream(stream):
                _C.submit_nothing()
        await stream

    gate.close(stream)
    waiting = [asyncio.ensure_future(job(n)) for n in range(jobs)]
    for _ in range(5):
        await asyncio.sleep(0)
    assert len(entered) == depth - 1  # the gate is a task too
    gate.open()
    await asyncio.gather(*waiting)
    assert entered == list(range(jobs))


async def test_a_cancelled_entrant_lets_the_next_one_in(stream, gate):
    limit = aio.QueueLimit(1, stream)
    gate.close(stream)

    async def enter():
        async with limit:
            return True

    first, second = (asyncio.ensure_future(enter()) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    gate.open()
    assert await second
    assert first.cancelled()


def test_a_queue_limit_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1, got 0"):
        aio.QueueLimit(0)
