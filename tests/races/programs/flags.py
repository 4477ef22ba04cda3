"""Orders that no stream waits of its own make: awaits and external events."""

import asyncio

import torch

npu = torch.npu


def correct_write_after_an_awaited_stream():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())

    async def main():
        with npu.stream(s):
            y = x + 1
        await s
        x.add_(1)
        return y

    return asyncio.run(main())


def correct_write_after_an_awaited_event():
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())

    async def main():
        with npu.stream(s):
            y = x + 1
        await s.record_event()
        x.add_(1)
        return y

    return asyncio.run(main())


def racy_write_after_an_event_awaited_too_early():
    "read/write"
    s = npu.Stream()
    x = torch.ones(100, device="npu")
    s.wait_stream(npu.current_stream())
    kept = []  # not the result: asyncio may print that

    async def main():
        early = s.record_event()
        with npu.stream(s):
            kept.append(x + 1)  # first: aten::add.Tensor
        await early
        x.add_(1)  # second: aten::add_.Tensor

    asyncio.run(main())
    return kept


def correct_external_event_recorded_before_the_wait():
    s, done = npu.Stream(), npu.ExternalEvent()
    x = torch.ones(100, device="npu")
    done.record()
    done.wait(s)
    with npu.stream(s):
        y = x + 1
    npu.synchronize()
    return y


def correct_external_event_recorded_after_the_wait():
    s, done = npu.Stream(), npu.ExternalEvent()
    x = torch.ones(100, device="npu")
    npu.synchronize()
    done.wait(s)
    with npu.stream(s):
        y = x + 1
    x.add_(1)
    done.record()
    npu.synchronize()
    return y


def racy_write_after_an_external_event():
    "read/write"
    s, done = npu.Stream(), npu.ExternalEvent()
    x = torch.ones(100, device="npu")
    done.record()
    done.wait(s)
    with npu.stream(s):
        y = x + 1  # first: aten::add.Tensor
    x.add_(1)  # second: aten::add_.Tensor
    return y


def correct_interprocess_event_that_the_host_waited_for():
    s, done = npu.Stream(), npu.Event(interprocess=True)
    x = torch.ones(100, device="npu")
    done.record()
    done.synchronize()
    with npu.stream(s):
        y = x + 1
    npu.synchronize()
    return y


def correct_interprocess_event_that_a_stream_waits_for():
    s, done = npu.Stream(), npu.Event(interprocess=True)
    x = torch.ones(100, device="npu")
    done.record()
    s.wait_event(done)
    with npu.stream(s):
        y = x + 1
    npu.synchronize()
    return y
