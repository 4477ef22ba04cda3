// What an emulated device was given, by kernel: for `npu-dispatch plan`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace npu {

struct EmulatedTotal {
  std::string name;
  uint64_t count = 0;
  double flops = 0, bytes = 0;
  double ns = 0;        // overhead and work
  double flops_ns = 0;  // of the work, where arithmetic is the limit
};

// Empty where the process has another driver. Any thread.
std::vector<EmulatedTotal> emulated_totals();
void forget_emulated_totals();

}  // namespace npu
