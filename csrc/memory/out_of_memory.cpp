// Explains why there was no memory.
#include <stdio.h>

#include "csrc/memory/caching_allocator.h"

namespace npu {
namespace {

std::string readable(uint64_t bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double amount = double(bytes);
  while (amount >= 1024 && unit < 4) {
    amount /= 1024;
    ++unit;
  }
  char text[32];
  snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", amount,
           units[unit]);
  return text;
}

}  // namespace

std::string OutOfMemory::message() const {
  std::string text = "NPU out of memory. Tried to allocate " + readable(asked) +
                     ". NPU " + std::to_string(device) +
                     " has a total capacity of " + readable(total) +
                     " of which " + readable(free) + " is free. ";
  if (limit < total)
    text += "This process may use at most " + readable(limit) + ". ";
  return text + "Of the memory this process holds, " + readable(allocated) +
         " is allocated by PyTorch, and " + readable(reserved - allocated) +
         " is reserved by PyTorch but unallocated. If reserved but unallocated "
         "memory is large, it is fragmented: try smaller or fewer sizes, or "
         "the settings in PYTORCH_NPU_ALLOC_CONF.";
}

}  // namespace npu
