// Tells a recorder about each step of the allocators.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace npu {

enum class MemoryAction : uint8_t {
  kAlloc,
  kFreeRequested,  // by the owner
  kFreeCompleted,  // no other stream may touch the block: it is reusable
  kSegmentAlloc,
  kSegmentFree,
  kOutOfMemory,  // bytes: asked for; address: free bytes
};

struct MemoryStep {
  MemoryAction action;
  int device;
  int64_t stream;
  uintptr_t address;
  size_t bytes;
};

// Called on the thread that takes the step. With kFreeCompleted an allocator's
// lock may be held: the function must then neither wait nor use device memory.
using MemoryTrace = void (*)(const MemoryStep&);

// Null: nobody records. Relaxed everywhere: the function guards its own state,
// and a step that is missed at the moment of switching is no error.
inline std::atomic<MemoryTrace> memory_trace{nullptr};

inline void trace(MemoryAction action, int device, int64_t stream,
                  const void* address, size_t bytes) {
  if (MemoryTrace f = memory_trace.load(std::memory_order_relaxed)) [[unlikely]]
    f({action, device, stream, reinterpret_cast<uintptr_t>(address), bytes});
}

}  // namespace npu
