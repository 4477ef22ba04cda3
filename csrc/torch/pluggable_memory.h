// Other sources of device memory than the caching allocator's shared pools: the
// private pools of a thread, and the user's own allocator.
#pragma once

#include <c10/core/Allocator.h>

#include <atomic>
#include <memory>

#include "csrc/driver/driver.h"

namespace npu {

class Stream;

// The user's functions. `stream` is the same handle in alloc and free.
struct PluggedAllocator {
  using Alloc = void* (*)(size_t bytes, int device, void* stream);
  using Free = void (*)(void* ptr, size_t bytes, int device, void* stream);
  Alloc alloc = nullptr;
  Free free = nullptr;
  // These are optional. They are set before the allocator is used, so they need
  // no atomics.
  void (*init)(int devices) = nullptr;
  void (*reset)(bool check_error) = nullptr;
  void (*memory_fraction)(double fraction, int device) = nullptr;
  void (*record_stream)(void* ptr, void* stream) = nullptr;
  void (*erase_stream)(void* ptr, void* stream) = nullptr;
  // Called when no queued work uses the memory any more, before free(). Another
  // code than NPU_OK fails the stream; where that has failed already, or has no
  // task for it, the text goes to stderr.
  int (*check)(const void* ptr, size_t bytes, npu_failure* failure) = nullptr;
};

// How many private pools and user's allocators are in use. Relaxed: whoever
// switches one on does so on the thread that allocates, or before such threads
// start.
inline std::atomic<int> pluggable_in_use_{0};
inline bool pluggable_memory_in_use() {
  return pluggable_in_use_.load(std::memory_order_relaxed) != 0;
}

// Returns null data where the caching allocator has the memory: in the pool
// `mempool` if this thread and device use one. Throws OutOfMemoryError.
c10::DataPtr allocate_elsewhere(size_t bytes, Stream& stream,
                                uint64_t& mempool);
// Wraps memory that exists already: `owner->free` is called once, when the
// tensor is gone and its streams are done with the memory.
c10::DataPtr adopt(void* ptr, size_t bytes, Stream& stream,
                   const PluggedAllocator* owner);
void record_elsewhere(const c10::DataPtr& data, Stream& stream);
void erase_elsewhere(const c10::DataPtr& data, Stream& stream);

// The calling thread's allocations on `device` come from the pool from now on,
// until the matching end; they nest. `plugged` may be null.
void begin_pool(int device, uint64_t mempool, const PluggedAllocator* plugged);
void end_pool(int device);

// Every allocation of the process uses `plugged` from now on; it is kept for
// good. Throws when device memory has been used, or when this was called
// before.
void replace_allocator(const PluggedAllocator* plugged);
bool allocator_replaced();
bool replaced_by(const PluggedAllocator* plugged);

// Pass torch.npu.empty_cache() and set_per_process_memory_fraction() on to the
// replacement, where there is one and it has a function for it.
void reset_replacement();
void limit_replacement(double fraction, int device);

}  // namespace npu
