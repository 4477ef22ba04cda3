"""npu tensors in other processes, which see the same memory.

As for CUDA, what is sent is a way to the sender's memory, and the sender keeps that
memory until each receiver has dropped it. Unlike there, a receiver that is killed
has dropped it, too; memory that has been received outlives its sender; and a
receiver may send it on. Sending waits for all that is queued on the device. For
what is written later, the processes need interprocess events.
"""

from __future__ import annotations

import fcntl
import itertools
import mmap
import os
import struct
import threading
from dataclasses import dataclass
from typing import Any

import torch
from torch.multiprocessing import reductions as _reductions

import npu_dispatch
from npu_dispatch import _C
from npu_dispatch.npu.runtime.codes import coded
from npu_dispatch.npu.runtime.start import _lazy_init
from npu_dispatch.npu.streams.shared_event import remove_orphans

# Without types.
reductions: Any = _reductions
storages: Any = torch.storage
utils: Any = torch._utils

_WORD = 4
_LOOKS = 16  # storages that each send looks at, so that many cost no more each
_FLOCK = "hhqqi4x"  # struct flock of 64-bit Linux


@dataclass
class _Out:
    """A storage that other processes have, or are about to have."""

    storage: torch.UntypedStorage
    slot: int
    sent: int


class _Ledger:
    """Which processes have which memory of this one; see csrc/torch/shared_memory.h."""

    def __init__(self) -> None:
        flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
        self.file = os.memfd_create("npu_ledger", flags)
        size = _C.LEDGER_SLOTS * _WORD
        try:
            os.ftruncate(self.file, size)
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(self.file, fcntl.F_ADD_SEALS, seals)
            self._map = mmap.mmap(self.file, size)
        except OSError:
            os.close(self.file)
            raise
        self.id = _id_of(self.file)
        self._words = memoryview(self._map).cast("I")
        self._next = 0
        self._free: list[int] = []
        self._out: dict[int, _Out] = {}  # by storage

    def send(self, storage: torch.UntypedStorage) -> int:
        """Count one more receiver of a storage; return the storage's slot."""
        self.collect(_LOOKS)
        out = self._out.get(storage._cdata)
        if out is None:
            slot = self._free.pop() if self._free else self._new_slot()
            # Slots are used again, so counts go on from where they are.
            out = _Out(storage, slot, self._words[slot])
            self._out[storage._cdata] = out
        out.sent = (out.sent + 1) % 2**32
        return out.slot

    def _new_slot(self) -> int:
        if self._next == _C.LEDGER_SLOTS:
            raise coded(
                RuntimeError,
                f"{self._next} tensors of this process are with other processes, "
                "more than there is room to keep account of",
            )
        self._next += 1
        return self._next - 1

    def collect(self, most: int | None = None) -> bool:
        """Drop the storages that nobody else has any more; look at `most` of them."""
        before = len(self._out)
        for key in list(itertools.islice(self._out, most)):
            out = self._out.pop(key)
            # The count is read first: whoever has received by then holds the lock.
            if self._words[out.slot] == out.sent and not self._is_held(out.slot):
                self._free.append(out.slot)
            else:
                self._out[key] = out  # at the end, behind those not looked at
        return len(self._out) < before

    def _is_held(self, slot: int) -> bool:
        asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, slot, 1, 0)
        answer = fcntl.fcntl(self.file, fcntl.F_OFD_GETLK, asked)
        return bool(struct.unpack(_FLOCK, answer)[0] != fcntl.F_UNLCK)


_ledger: _Ledger | None = None
_lock = threading.RLock()


def _forget_in_child() -> None:
    """Forget in a forked child what was sent; the parent keeps account of it."""
    global _ledger, _lock
    _ledger, _lock = None, threading.RLock()


os.register_at_fork(after_in_child=_forget_in_child)


def collect() -> bool:
    """Free what was sent and no other process has any more; return if there was any."""
    with _lock:
        return _ledger is not None and _ledger.collect()


def ipc_collect() -> None:
    """Free what was sent to other processes and which they no longer have.

    Sending a tensor does so, too. This call also removes the files of interprocess
    events whose maker was killed.
    """
    _lazy_init()
    collect()
    remove_orphans()


def _id_of(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino


@dataclass(frozen=True)
class _File:
    """An open file of a process."""

    pid: int
    number: int
    id: tuple[int, int]

    def open(self) -> int:
        try:
            file = os.open(f"/proc/{self.pid}/fd/{self.number}", os.O_RDWR)
        except FileNotFoundError:
            raise self._gone() from None
        except OSError as error:
            raise coded(
                RuntimeError,
                f"the memory of process {self.pid}, which sent an npu tensor, cannot "
                f"be opened: {error.strerror}. Both have to be of one user and one "
                "container; else send tensor.cpu()",
            ) from None
        if _id_of(file) != self.id:
            os.close(file)
            raise self._gone()
        return file

    def _gone(self) -> Exception:
        return coded(
            RuntimeError,
            f"process {self.pid} sent an npu tensor and ended before it was received. "
            "Let it run until then, or send tensor.cpu()",
        )


@dataclass(frozen=True)
class _Handle:
    """What a receiver needs to know of a storage."""

    device: int
    segment: _File
    segment_bytes: int
    offset: int
    bytes: int
    ledger: _File
    slot: int

    @property
    def key(self) -> tuple[object, ...]:
        return "npu", self.segment.id, self.offset, self.bytes


def _share(tensor: torch.Tensor) -> _Handle:
    global _ledger
    number, segment_bytes, offset = _C.share_memory(tensor)
    storage = tensor.untyped_storage()
    with _lock:
        if _ledger is None:
            _ledger = _Ledger()
        slot = _ledger.send(storage)
        pid = os.getpid()
        handle = _Handle(
            device=tensor.get_device(),
            segment=_File(pid, number, _id_of(number)),
            segment_bytes=segment_bytes,
            offset=offset,
            bytes=storage.nbytes(),
            ledger=_File(pid, _ledger.file, _ledger.id),
            slot=slot,
        )
        # A process that is sent its own storage back gets that storage.
        reductions.shared_cache[handle.key] = reductions.StorageWeakRef(storage)
    return handle


def _check_device(index: int) -> None:
    _lazy_init()
    count = _C.device_count()
    if index >= count:
        raise coded(
            RuntimeError,
            f"a tensor of npu:{index} was sent to a process that has {count} "
            "devices; give both the same ASCEND_RT_VISIBLE_DEVICES and "
            "NPU_DISPATCH_DEVICES",
        )


def _open(handle: _Handle) -> torch.UntypedStorage:
    ledger = handle.ledger.open()
    segment = -1
    try:
        _check_device(handle.device)
        with _lock:
            storage = reductions.storage_from_cache(torch.UntypedStorage, handle.key)
            if storage is not None:
                _C.received_again(ledger, handle.slot)
                return storage  # type: ignore[no-any-return]
            segment = handle.segment.open()
            storage = _C.open_shared_memory(
                handle.device,
                segment,
                handle.segment_bytes,
                handle.offset,
                handle.bytes,
                ledger,
                handle.slot,
            ).untyped_storage()
            reductions.shared_cache[handle.key] = reductions.StorageWeakRef(storage)
            return storage
    except BaseException:
        _C.received_again(ledger, handle.slot)  # or it would be kept for this process
        raise
    finally:
        os.close(ledger)
        if segment >= 0:
            os.close(segment)


def _rebuild(
    kind: type[torch.Tensor],
    handle: _Handle | int,
    dtype: torch.dtype,
    shape: tuple[Any, ...],
    requires_grad: bool,
    bits: dict[str, bool],
) -> torch.Tensor:
    npu_dispatch.register()
    if isinstance(handle, int):
        storage = storages.UntypedStorage(0, device=f"npu:{handle}")
    else:
        storage = _open(handle)
    typed = storages.TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)
    size, stride, offset = shape
    t: torch.Tensor = utils._rebuild_tensor(typed, offset, size, stride)
    utils.set_tensor_metadata(t, bits)
    if kind is torch.nn.Parameter:
        return torch.nn.Parameter(t, requires_grad=requires_grad)
    t.requires_grad = requires_grad
    return t


def _reduced(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.requires_grad and not tensor.is_leaf:
        raise coded(
            RuntimeError,
            "a tensor that requires grad and is no leaf was sent to another process, "
            "where autograd cannot follow. Send tensor.detach()",
        )
    torch.utils.hooks.warn_if_has_hooks(tensor)
    _lazy_init()
    empty = tensor.untyped_storage().nbytes() == 0
    return _rebuild, (
        type(tensor),
        tensor.get_device() if empty else _share(tensor),
        tensor.dtype,
        (tuple(tensor.size()), tensor.stride(), tensor.storage_offset()),
        tensor.requires_grad,
        utils.get_tensor_metadata(tensor),
    )


def _raise(pid: int, text: str) -> None:
    raise coded(RuntimeError, f"process {pid} could not send an npu tensor: {text}")


def reduce_tensor(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Say how another process rebuilds an npu tensor."""
    try:
        return _reduced(tensor)
    except Exception as error:
        # The thread of a queue prints what it cannot send and goes on, and whoever
        # waits for it waits for ever.
        if not threading.current_thread().name.startswith("QueueFeederThread"):
            raise
        return _raise, (os.getpid(), str(error))
