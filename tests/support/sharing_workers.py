"""What the other processes of these tests do; they import it."""

import os
import signal

import torch
import torch.utils.data


def answer(inbox, outbox):
    """Apply each (function, tensors) until None comes."""
    for name, *tensors in iter(inbox.get, None):
        outbox.put(globals()[name](*tensors))
        del tensors


def total(t):
    return t.sum().item()


def is_npu(t):
    return str(t.device), tuple(t.shape), t.stride(), t.requires_grad, type(t).__name__


def add_ten(t):
    with torch.no_grad():
        t += 10
    torch.npu.synchronize()


def made(n):
    return torch.arange(n, device="npu")


def same(t):
    return t


kept = []


def keep(t):
    kept.append(t)


def drop_all():
    kept.clear()
    torch.npu.synchronize()
    torch.npu.ipc_collect()  # what it has sent back or on


def share_storage(a, b):
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def record(event, t):
    stream = torch.npu.current_stream()
    t.fill_(5)
    event.record(stream)


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def add_one_to(t, outbox):
    t += 1
    torch.npu.synchronize()
    outbox.put("done")


def send_and_end(outbox):
    outbox.put(torch.ones(4, device="npu"))


def use(t, outbox):
    try:
        outbox.put(str((t + 1).sum().item()))
    except RuntimeError as error:
        outbox.put(str(error))


def receive(inbox, outbox):
    try:
        outbox.put(inbox.get().sum().item())
    except RuntimeError as error:
        outbox.put(str(error))


def send(t, outbox):
    outbox.put(t)


class OnDevice(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.full((3,), float(i), device="npu")
