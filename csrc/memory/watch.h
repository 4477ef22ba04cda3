// Notifies observers when memory that they do not own is freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace npu {

// Notes the free of memory for an observer that relies on it.
struct MemoryWatch {
  // Set with `ended`, to the same number, where it is 0; several share it.
  std::atomic<uint64_t>* first_ended = nullptr;
  // The number of the free among all frees that were noted; 0: not freed.
  // Release where the two are set, and acquire where they are read: who sees
  // the number sees `ended_at`.
  std::atomic<uint64_t> ended{0};
  uint32_t ended_at = 0;  // the call site of the free; 0: not known

  // The rest is guarded by the watches' mutex.
  bool watching = false;
  uintptr_t address = 0;
  uint64_t graph_pool = 0;  // that the memory belongs to; 0: none
  bool back_in_pool = false;
};

// Watches the memory at `address` until it is freed, whoever owns it: an
// allocator of a device, the allocator of pinned memory, a pluggable allocator,
// another process, or the caller of npuHostRegister(). Device memory that is
// free already has ended. Memory that none of them owns never ends. False, and
// nothing is watched: the graph pool `own_pool` owns it. Throws std::bad_alloc.
bool watch_memory(const void* address, uint64_t own_pool, MemoryWatch& watch);
// Nothing is noted in `watch` any more.
void unwatch_memory(MemoryWatch& watch);

// How many frees have been noted. A free that comes before this call, in the
// order of the program, has a number that is not larger.
uint64_t memory_ends_noted();

namespace detail {
// How many watches there are. Relaxed everywhere: the program orders the start
// of a watch before a free that the watch has to note.
inline std::atomic<size_t> memory_watches{0};

void end_watches(const void* memory, size_t bytes, uint64_t graph_pool);
}  // namespace detail

// Each owner calls it when its user gives memory back, before anybody else can
// get it. `graph_pool`: the pool that keeps the memory for its graphs; 0: none.
// Never throws. Holds no lock that the interpreter's may be waited for under.
inline void memory_freed(const void* memory, size_t bytes,
                         uint64_t graph_pool = 0) {
  if (detail::memory_watches.load(std::memory_order_relaxed)) [[unlikely]]
    detail::end_watches(memory, bytes, graph_pool);
}
// The graphs of the pool are gone, so that its free memory may go anywhere.
void graph_pool_freed(uint64_t graph_pool);

}  // namespace npu
