// Allocators of a known size for the tests in this folder.
#pragma once

#include "csrc/memory/caching_allocator.h"
#include "tests/cpp/kernels.h"

namespace npu::check {

inline constexpr size_t kKiB = 1024, kMiB = 1024 * kKiB;
inline constexpr size_t kTotal = 256 * kMiB;

// The tests queue kernels that must run, whatever NPU_DRIVER says.
inline const int host_driver_chosen = setenv("NPU_DRIVER", "host", 1);

// Has kTotal bytes, and holds these private pools.
struct Memory : CachingAllocator {
  explicit Memory(std::initializer_list<uint64_t> pools = {}, int device = 0)
      : CachingAllocator(of_total(device)) {
    for (const uint64_t pool : pools) hold_pool(pool);
  }
  static int of_total(int device) {
    setenv("NPU_DISPATCH_MEMORY", std::to_string(kTotal).c_str(), 1);
    return device;
  }
};

// Two streams, which every test leaves idle.
inline Stream& first_stream() { return *find_stream(0, 0); }
inline Stream& second_stream() {
  return *find_stream(0, int64_t(StreamPool::kNormal) << 5);
}

inline Block* take(CachingAllocator& memory, size_t bytes,
                   Stream& stream = first_stream()) {
  OutOfMemory why;
  return memory.allocate(bytes, stream, why);
}

// Where a block was that was taken and freed.
inline void* take_and_free(CachingAllocator& memory, size_t bytes,
                           Stream& stream = first_stream()) {
  Block* const block = take(memory, bytes, stream);
  void* const address = block->ptr;
  memory.free(block);
  return address;
}

}  // namespace npu::check
