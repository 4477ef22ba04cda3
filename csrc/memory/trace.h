// Who is told about each step of the memory, while somebody records it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace npu {

enum class MemoryAction : uint8_t {
  kAlloc,
  kFreeRequested,  // by the owner
  kFreeCompleted,  // reusable: no other stream may touch it any more
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

// Called on the thread that does it. With kFreeCompleted an allocator's lock
// may be held: the function must then neither wait nor use device memory.
using MemoryTrace = void (*)(const MemoryStep&);

// Null: nobody records. Relaxed everywhere: the function guards its own state,
// and a step missed at the moment of switching is no error.
inline std::atomic<MemoryTrace> memory_trace{nullptr};

inline void trace(MemoryAction action, int device, int64_t stream,
                  const void* address, size_t bytes) {
  if (MemoryTrace f = memory_trace.load(std::memory_order_relaxed)) [[unlikely]]
    f({action, device, stream, reinterpret_cast<uintptr_t>(address), bytes});
}

}  // namespace npu
