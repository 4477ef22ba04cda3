"""Private memory pools, and allocators that users bring."""

from __future__ import annotations

import contextlib
import ctypes
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_dispatch import _C
from npu_dispatch.npu.memory.history import memory_snapshot
from npu_dispatch.npu.runtime.codes import coded, expect
from npu_dispatch.npu.runtime.devices import Device, resolve
from npu_dispatch.npu.runtime.start import _lazy_init


class _Plugged:
    """The C functions of an NPUPluggableAllocator, as the engine knows them."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def _hook(self, name: str, function: int) -> None:
        if not isinstance(function, int) or not 0 <= function < 2**64:
            raise coded(
                TypeError,
                f"expected the address of a C function or 0, but got {function!r}",
            )
        _C.plug_hook(self._handle, name, function)

    def set_init_fn(self, function: int) -> None:
        """void(int devices): change_current_allocator() calls it."""
        self._hook("init", function)

    def set_reset_fn(self, function: int) -> None:
        """void(bool check_error): empty_cache() calls it."""
        self._hook("reset", function)

    def set_memory_fraction_fn(self, function: int) -> None:
        """void(double fraction, int device): of set_per_process_memory_fraction()."""
        self._hook("memory_fraction", function)

    def set_record_stream_fn(self, function: int) -> None:
        """void(void* ptr, void* stream): a tensor's record_stream() calls it."""
        self._hook("record_stream", function)

    def set_erase_stream_fn(self, function: int) -> None:
        """void(void* ptr, void* stream): erase_stream() calls it."""
        self._hook("erase_stream", function)


class NPUPluggableAllocator:
    """An allocator of the user's, from a shared library.

    The library has these functions, with C linkage:

        void* alloc(size_t size, int device, void* stream);
        void free(void* ptr, size_t size, int device, void* stream);

    `size` is in bytes, and `stream` is a stream's `npu_stream`. alloc runs on the
    caller's thread; null means out of memory. free runs on any thread, once no queued
    work can use the memory any more. Memory must be aligned for any dtype. A missing
    library raises OSError, and a missing function AttributeError. Before the
    allocator is used, optional functions can be given to allocator().
    """

    def __init__(
        self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str
    ) -> None:
        # It is never closed, as its functions are needed until the process ends.
        self._library = ctypes.CDLL(str(Path(path_to_so_file)))
        functions = [
            ctypes.cast(getattr(self._library, name), ctypes.c_void_p).value
            for name in (alloc_fn_name, free_fn_name)
        ]
        self._plugged = _Plugged(_C.plug(*(address or 0 for address in functions)))

    def allocator(self) -> _Plugged:
        """Return the object that MemPool() takes for an allocator.

        Its set_init_fn, set_reset_fn, set_memory_fraction_fn, set_record_stream_fn
        and set_erase_stream_fn give it functions by address; 0 takes one back.
        """
        return self._plugged


def change_current_allocator(allocator: NPUPluggableAllocator) -> None:
    """Take all device memory from `allocator` from now on.

    This works once per process, and before any device memory was used; later it raises
    RuntimeError. The statistics of memory then stay at zero.
    """
    expect(allocator, NPUPluggableAllocator, "allocator")
    _C.replace_allocator(allocator.allocator()._handle)


# The handles of the pools' own allocators.
plugged: dict[int, int] = {}


def _release(number: int, devices: set[int]) -> None:
    plugged.pop(number, None)
    for index in devices:
        _C.release_pool(index, number)


class MemPool:
    """Memory that only use_mem_pool() serves from.

    allocator: where the memory comes from, an NPUPluggableAllocator's allocator(); by
    default the driver. use_on_oom: before other allocations run out of memory, they
    get what is free in the pool. no_split: no two tensors share a segment. A graph
    captured with `pool=pool.id` belongs to the pool: their memory goes by one name, and
    never overlaps. When the pool and its graphs are gone, its free memory is released;
    empty_cache() releases the rest later.
    """

    def __init__(
        self,
        allocator: _Plugged | NPUPluggableAllocator | None = None,
        use_on_oom: bool = False,
        no_split: bool = False,
    ) -> None:
        if isinstance(allocator, NPUPluggableAllocator):
            allocator = allocator.allocator()
        if allocator is not None and not isinstance(allocator, _Plugged):
            raise coded(
                TypeError,
                "allocator must be NPUPluggableAllocator(...).allocator(), but got "
                f"{type(allocator).__name__}",
            )
        # graph_pool_handle() and NPUGraph.pool() count by it, too.
        self._number = _C.new_graph_pool()
        self._allocator = allocator
        if allocator is not None:
            plugged[self._number] = allocator._handle
        self._rules = use_on_oom, not no_split
        self._devices: set[int] = set()
        self._contexts = 0
        self._lock = threading.Lock()
        weakref.finalize(self, _release, self._number, self._devices)

    @property
    def id(self) -> tuple[int, int]:
        """The pool's name in memory_snapshot(mempool_id) and in segment_pool_id."""
        return 0, self._number

    @property
    def allocator(self) -> _Plugged | None:
        """The allocator that its memory comes from; None for the driver."""
        return self._allocator

    def use_count(self) -> int:
        """Return how many owners the pool has.

        They are this object, each use_mem_pool() under way, and each graph captured
        into it. Mirrors torch.cuda.MemPool.use_count.
        """
        graphs = sum(
            _C.graph_pool_users(index, self._number)
            for index in range(_C.device_count())
        )
        return 1 + self._contexts + graphs

    def snapshot(self, include_traces: bool = True) -> list[dict[str, Any]]:
        """Return the pool's segments, as memory_snapshot() does."""
        return memory_snapshot(self.id, include_traces)

    def _enter(self, index: int) -> None:
        with self._lock:
            if index not in self._devices:
                _C.hold_pool(index, self._number, *self._rules)
                self._devices.add(index)
            self._contexts += 1

    def _leave(self) -> None:
        with self._lock:
            self._contexts -= 1


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: Device = None) -> Iterator[None]:
    """Serve this thread's allocations on `device` from the pool, inside the block.

    `device` is the current one by default. The pool must outlive its tensors' use.
    """
    _lazy_init()
    expect(pool, MemPool, "pool")
    index = resolve(device)
    pool._enter(index)
    _C.begin_pool(index, pool._number, plugged.get(pool._number, 0))
    try:
        yield
    finally:
        _C.end_pool(index)
        pool._leave()
