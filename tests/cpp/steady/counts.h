// Counts the calling thread's allocations, locks and system calls.
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
