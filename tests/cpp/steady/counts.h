// What the calling thread has asked of the heap, of mutexes and of the kernel.
#pragma once

#include <cstdint>

namespace npu::check {

struct Counts {
  uint64_t allocations = 0;
  uint64_t locks = 0;
  uint64_t system_calls = 0;
};

extern thread_local Counts counts;

}  // namespace npu::check
