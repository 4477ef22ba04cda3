"""Pools, the user's allocator and host statistics."""

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from c_library import compiled
from freed_inputs import INPUT_ENDS, REPLAYED_WITHOUT_INPUT

from tests.ecosystem.both import in_threads

MIB = 1 << 20

ALLOCATOR = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static long allocated, freed;
void* my_alloc(size_t size, int device, void* stream) {
  (void)device; (void)stream;
  if (size > (size_t)1 << 40) return 0;
  void* p = aligned_alloc(512, (size + 511) / 512 * 512);
  allocated += size;
  return p;
}
void my_free(void* p, size_t size, int device, void* stream) {
  (void)device; (void)stream;
  memset(p, 0xff, size);  /* whoever uses it too late sees NaN */
  freed += size;
  free(p);
}
static long calls[5], devices, device_of_fraction;
static double fraction;
static void* last[2];
void on_init(int n) { calls[0]++; devices = n; }
void on_reset(_Bool check) { calls[1] += check; }
void on_fraction(double f, int d) { calls[2]++; fraction = f; device_of_fraction = d; }
void on_record(void* p, void* s) { calls[3]++; last[0] = p; last[1] = s; }
void on_erase(void* p, void* s) { calls[4]++; last[0] = p; last[1] = s; }
long called(int n) { return calls[n]; }
void* last_named(int n) { return last[n]; }
double my_fraction(void) { return fraction; }
long my_allocated(void) { return allocated; }
long my_freed(void) { return freed; }
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory) -> str:
    source = tmp_path_factory.mktemp("allocator") / "alloc.c"
    source.write_text(ALLOCATOR)
    return str(compiled(source))


@pytest.fixture
def plugged(library) -> tuple[Any, ctypes.CDLL]:
    """The allocator of the library, and its counts."""
    allocator = torch.npu.NPUPluggableAllocator(library, "my_alloc", "my_free")
    return allocator, ctypes.CDLL(library)


def take() -> torch.Tensor:
    return torch.empty(MIB, dtype=torch.uint8, device="npu")


def test_memory_of_a_pool_serves_only_the_pool():
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        inside = take()
    outside = take()

    [segment] = pool.snapshot()
    here = range(segment["address"], segment["address"] + segment["total_size"])
    assert segment["segment_pool_id"] == pool.id
    assert inside.data_ptr() in here and outside.data_ptr() not in here
    assert torch.npu.memory_snapshot(pool.id) == [segment]

    address = inside.data_ptr()
    del inside
    again = take()
    assert again.data_ptr() != address  # free, and still the pool's
    with torch.npu.use_mem_pool(torch.npu.MemPool()):
        assert take().data_ptr() != address
    with torch.npu.use_mem_pool(pool), torch.npu.stream(torch.npu.Stream()):
        assert take().data_ptr() != address
    with torch.npu.use_mem_pool(pool):
        assert take().data_ptr() == address


def test_a_pool_gives_its_free_memory_back_when_it_goes():
    before = torch.npu.memory_reserved()
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        x = torch.empty(30 * MIB, dtype=torch.uint8, device="npu")
        y = torch.empty(30 * MIB, dtype=torch.uint8, device="npu").zero_()
    assert torch.npu.memory_reserved() == before + 60 * MIB
    del y

    del pool
    gc.collect()
    assert torch.npu.memory_reserved() == before + 30 * MIB  # x is in use
    del x


def test_a_pool_counts_who_holds_it():
    pool = torch.npu.MemPool()
    assert pool.use_count() == 1
    with torch.npu.use_mem_pool(pool):
        assert pool.use_count() == 2
        with torch.npu.use_mem_pool(pool):
            assert pool.use_count() == 3
    assert pool.use_count() == 1

    graph, x = torch.npu.NPUGraph(), torch.ones(4, device="npu")
    with torch.npu.graph(graph, pool=pool.id):
        y = x + 1
    assert pool.use_count() == 2
    del y
    graph.reset()
    assert pool.use_count() == 1


def test_pools_and_graphs_have_one_name_space():
    names = set()
    for _ in range(3):
        pool, graph = torch.npu.MemPool(), torch.npu.NPUGraph()
        with torch.npu.graph(graph):
            torch.ones(4, device="npu") + 1
        new = {pool.id, graph.pool(), torch.npu.graph_pool_handle()}
        assert len(new) == 3
        assert not names & new
        names |= new
        del graph


def test_a_pool_is_its_threads_own():
    pool, made = torch.npu.MemPool(), []

    with torch.npu.use_mem_pool(pool):
        in_threads(lambda: made.append(take()))

    assert pool.snapshot() == []


def test_no_split_gives_each_tensor_a_segment():
    pool = torch.npu.MemPool(no_split=True)
    with torch.npu.use_mem_pool(pool):
        tensors = [torch.empty(512, dtype=torch.uint8, device="npu") for _ in range(3)]

    assert [len(segment["blocks"]) for segment in pool.snapshot()] == [1, 1, 1]
    del tensors


def test_use_on_oom_lends_the_pools_memory(python):
    code = """
import npu_dispatch, torch
def use(lends, stream=None):
    pool = torch.npu.MemPool(use_on_oom=lends)
    with torch.npu.use_mem_pool(pool):
        torch.empty(48 << 20, dtype=torch.uint8, device="npu")
    try:
        with torch.npu.stream(stream):
            torch.empty(40 << 20, dtype=torch.uint8, device="npu")
        return True
    except torch.OutOfMemoryError:
        return False
    finally:
        del pool
        torch.npu.empty_cache()
print(use(False), use(True), use(True, torch.npu.Stream()))
"""
    lent = python(code, NPU_DISPATCH_MEMORY="64M").stdout.split()
    assert lent == ["False", "True", "False"]


def test_memory_of_a_graph_that_is_gone_is_found_before_memory_is_said_to_lack(python):
    """A graph is destroyed once its last replay has ended, by whoever looks next."""
    code = """
import torch
graph = torch.npu.NPUGraph()
with torch.npu.graph(graph):
    torch.empty(48 << 20, dtype=torch.uint8, device="npu").fill_(1)
graph.replay()
del graph
torch.npu.synchronize()
torch.empty(48 << 20, dtype=torch.uint8, device="npu")
print("found")
"""
    assert python(code, NPU_DISPATCH_MEMORY="64M").stdout.split() == ["found"]


def test_who_watches_for_lack_of_memory_hears_of_a_pool_too(python):
    code = """
import npu_dispatch, torch
seen = []
npu_dispatch._C.attach_out_of_memory_observer(lambda *told: seen.append(told))
pool = torch.npu.MemPool()
for context in (torch.npu.use_mem_pool(pool), torch.npu.stream(None)):
    with context:
        try:
            torch.empty(65 << 20, dtype=torch.uint8, device="npu")
        except torch.OutOfMemoryError:
            print("raised")
print([told[1] >= 65 << 20 for told in seen])
"""
    told = python(code, NPU_DISPATCH_MEMORY="64M").stdout.splitlines()
    assert told == ["raised", "raised", "[True, True]"]


def test_a_forked_child_may_free_pinned_memory_that_streams_have_used(python):
    code = """
import os, torch
pinned = torch.ones(1 << 16).pin_memory()
copied = pinned.to("npu", non_blocking=True)
child = os.fork()
if child == 0:
    del pinned
    os._exit(7)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), copied.sum().item())
"""
    assert python(code).stdout.split() == ["7", "65536.0"]


def test_a_capture_inside_a_pool_has_its_own_memory_and_leaves_the_pool_in_use():
    pool, graph, stream = torch.npu.MemPool(), torch.npu.NPUGraph(), torch.npu.Stream()
    with torch.npu.stream(stream), torch.npu.use_mem_pool(pool):
        address = take().data_ptr()
        with torch.npu.graph(graph, stream=stream):
            captured = take()
        assert take().data_ptr() == address
    [segment] = torch.npu.memory_snapshot(graph.pool())
    here = range(segment["address"], segment["address"] + segment["total_size"])
    assert captured.data_ptr() in here and address not in here


def test_a_capture_borrows_no_memory(python):
    code = """
import torch
pool = torch.npu.MemPool(use_on_oom=True)
graph, stream = torch.npu.NPUGraph(), torch.npu.Stream()
def take(mib):
    return torch.empty(mib << 20, dtype=torch.uint8, device="npu")
with torch.npu.stream(stream):
    with torch.npu.use_mem_pool(pool):
        take(48)
    try:
        with torch.npu.graph(graph, stream=stream):
            take(40)
    except torch.OutOfMemoryError:
        print("refused")
    take(40)
"""
    assert python(code, NPU_DISPATCH_MEMORY="64M").stdout.split() == ["refused"]


def test_a_pool_takes_its_memory_from_the_users_allocator(plugged):
    allocator, counts = plugged
    pool = torch.npu.MemPool(allocator.allocator())
    before = counts.my_allocated()

    with torch.npu.use_mem_pool(pool):
        x = torch.ones(1000, device="npu")
    y = x * 2
    side = torch.npu.Stream()
    side.wait_stream(torch.npu.current_stream())
    with torch.npu.stream(side):
        z = x + 1
    x.record_stream(side)
    del x
    torch.npu.synchronize()

    assert counts.my_allocated() == before + 4000
    assert counts.my_freed() == counts.my_allocated()
    assert y.tolist() == z.tolist() == [2] * 1000


PLUGGED = """
import ctypes, gc, sys
import torch
counts = ctypes.CDLL(sys.argv[1])
allocator = torch.npu.NPUPluggableAllocator(sys.argv[1], "my_alloc", "my_free")
assert torch.npu.get_allocator_backend() == "native"
torch.npu.change_current_allocator(allocator)
"""


def test_the_whole_process_uses_the_users_allocator(library, python):
    code = """
assert torch.npu.get_allocator_backend() == "pluggable"
x = torch.ones(1000, device="npu")
for _ in range(100):
    x = x * 1.0 + 0.0
assert x.sum().item() == 1000
assert counts.my_allocated() >= 4000 * 200
assert torch.npu.memory_allocated() == 0
for bad in (lambda: torch.npu.change_current_allocator(allocator),
            lambda: torch.empty(1 << 45, dtype=torch.uint8, device="npu")):
    try:
        bad()
    except RuntimeError as error:
        print(type(error).__name__)
del x
torch.npu.synchronize()
assert counts.my_freed() == counts.my_allocated()
"""
    result = python(PLUGGED + code, library)
    assert result.stdout.split() == ["RuntimeError", "OutOfMemoryError"]


def test_a_graph_keeps_the_memory_that_the_users_allocator_gave_it(library, python):
    code = """
x, graph = torch.ones(1000, device="npu"), torch.npu.NPUGraph()
torch.npu.synchronize()
before = counts.my_allocated(), counts.my_freed()
with torch.npu.graph(graph):
    y = ((x + 1) * 2 - 3).exp()
kept = counts.my_allocated() - before[0]
assert kept >= 4 * 4000, kept
print(counts.my_freed() - before[1])
for _ in range(3):
    x.add_(1)
    graph.replay()
    assert torch.equal(y.cpu(), ((x.cpu() + 1) * 2 - 3).exp())
z = torch.full((1000,), 7.0, device="npu")
graph.replay()
assert z.eq(7).all()
del y, z
torch.npu.synchronize()
print(counts.my_freed() - counts.my_allocated() <= -kept)
del graph, x
gc.collect()
torch.npu.synchronize()
torch.npu.empty_cache()
print(counts.my_freed() - counts.my_allocated())
"""
    assert python(PLUGGED + code, library).stdout.split() == ["0", "True", "0"]


@pytest.mark.parametrize("end", INPUT_ENDS.values(), ids=INPUT_ENDS)
def test_a_replay_knows_that_the_users_memory_was_freed(library, python, end):
    said = python(REPLAYED_WITHOUT_INPUT.replace("END", end), library).stdout
    assert said.split() == ["9.0", "True"]


FREES = """
from torch.npu import DeviceError
from npu_dispatch import _C
sys.path.append(sys.argv[2])
from held_stream import Held
torch.npu.init()
side = torch.npu.Stream()
%s
torch.npu.synchronize()
torch.npu.empty_cache()
assert counts.my_freed() == counts.my_allocated()
"""
FREED_WHERE = {
    # What is freed where nothing may wait, and nothing can be queued.
    "guard": """
x = torch.ones(100, device="npu")
x.record_stream(side)
with Held(side), torch.npu.sync_guard("error", explicit=True):
    del x
""",
    "capture": """
x, graph = torch.ones(100, device="npu"), torch.npu.NPUGraph()
torch.npu.synchronize()
with torch.npu.graph(graph):
    del x
    _C.submit_nothing()
graph.replay()
graph.replay()
del graph
""",
    "full": """
x = torch.ones(100, device="npu")
with Held(), torch.npu.sync_guard("error", explicit=True):
    try:
        while True:
            _C.submit_nothing()
    except torch.npu.HostSyncError:
        pass
    del x
""",
    "failed": """
x = torch.ones(100, device="npu")
with Held():
    torch.npu.current_stream().submit(lambda: 1 / 0)
    del x
try: torch.npu.synchronize()
except DeviceError: torch.npu.clear_error()
""",
}


@pytest.mark.parametrize("where", FREED_WHERE)
def test_memory_of_the_users_allocator_is_freed_without_a_wait(library, python, where):
    support = str(Path(__file__).parent.parent / "support")
    python(PLUGGED + FREES % FREED_WHERE[where], library, support)


def test_the_users_allocator_hears_of_what_else_happens(library, python):
    code = """
import ctypes, sys
import npu_dispatch, torch
npu, c = torch.npu, ctypes.CDLL(sys.argv[1])
c.last_named.restype = ctypes.c_void_p
c.my_fraction.restype = ctypes.c_double
plugged = npu.NPUPluggableAllocator(sys.argv[1], "my_alloc", "my_free")
take = plugged.allocator()
for hook, name in {"init": "init", "reset": "reset", "memory_fraction": "fraction",
                   "record_stream": "record", "erase_stream": "erase"}.items():
    address = ctypes.cast(getattr(c, "on_" + name), ctypes.c_void_p).value
    getattr(take, f"set_{hook}_fn")(address)
npu.change_current_allocator(plugged)
npu.init()
npu.set_per_process_memory_fraction(0.25, 0)
npu.empty_cache()
x, side = torch.ones(1000, device="npu"), npu.Stream()
x.record_stream(side)
assert (c.last_named(0), c.last_named(1)) == (x.data_ptr(), side.npu_stream)
npu.erase_stream(x, side)
del x
torch.accelerator.empty_cache()
print([c.called(n) for n in range(5)], c.my_fraction())
take.set_reset_fn(0)
npu.empty_cache()
assert c.called(1) == 2
for bad in ("f", -1, None):
    try: take.set_init_fn(bad)
    except TypeError as error: print("refused")
"""
    lines = python(code, library).stdout.splitlines()

    assert lines == ["[1, 2, 1, 1, 1] 0.25", "refused", "refused", "refused"]


def test_memory_of_the_users_allocator_forgets_an_erased_stream(plugged):
    allocator, counts = plugged
    pool = torch.npu.MemPool(allocator)
    gate, side = torch.npu.ExternalEvent(), torch.npu.Stream()
    with torch.npu.use_mem_pool(pool):
        x = torch.ones(1000, device="npu")
    torch.npu.synchronize()
    before = counts.my_freed()
    gate.wait(side)
    x.record_stream(side)

    torch.npu.erase_stream(x, side)
    del x
    freed = counts.my_freed()  # at once, although `side` is still held
    gate.record(torch.npu.Stream())  # not the one that might wait for `side`
    side.synchronize()

    assert freed == before + 4000


def test_the_allocator_cannot_change_once_memory_was_used(plugged):
    torch.ones(1, device="npu")

    with pytest.raises(RuntimeError, match="already initialized"):
        torch.npu.change_current_allocator(plugged[0])


def test_a_missing_library_or_function_is_named(library, tmp_path):
    with pytest.raises(OSError, match=r"none\.so"):
        torch.npu.NPUPluggableAllocator(str(tmp_path / "none.so"), "a", "b")
    with pytest.raises(AttributeError, match="nothing"):
        torch.npu.NPUPluggableAllocator(library, "my_alloc", "nothing")


@pytest.mark.parametrize("both", [False, True])
def test_erase_stream_lets_memory_be_reused_without_that_stream(both):
    side, other = torch.npu.Stream(), torch.npu.Stream()
    gate = torch.npu.ExternalEvent()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="npu")
    gate.wait(side)
    for stream in (side, other):
        x.record_stream(stream)
    torch.npu.erase_stream(x, side if both else other)
    if both:
        torch.npu.erase_stream(x, other)
    before = torch.npu.memory_stats()["active.all.current"]
    del x

    assert torch.npu.memory_stats()["active.all.current"] == before - both
    gate.record()
    side.synchronize()
    with pytest.raises(TypeError, match="must be a Tensor, but got int"):
        torch.npu.erase_stream(1, side)


def test_pinned_memory_is_counted():
    torch.npu.synchronize()
    torch.npu.host_empty_cache()  # blocks that were freed while in use
    before = torch.npu.host_memory_stats()
    x = torch.empty(MIB, dtype=torch.uint8).pin_memory()
    after = torch.npu.host_memory_stats()

    grown = after["active_bytes.current"] - before["active_bytes.current"]
    assert grown >= MIB
    assert torch.npu.host_memory_stats_as_nested_dict()["active_bytes"]["current"]
    del x
    torch.npu.host_empty_cache()
    torch.npu.reset_peak_host_memory_stats()
    stats = torch.npu.host_memory_stats()
    assert stats["active_bytes.peak"] == stats["active_bytes.current"]
    torch.npu.reset_accumulated_host_memory_stats()
    assert torch.npu.host_memory_stats()["num_host_alloc"] == 0
