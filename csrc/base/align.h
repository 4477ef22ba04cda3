// Cache lines: the size that keeps two threads' words apart, and fetching one
// before it is written.
#pragma once

#include <cstddef>

namespace npu {

inline constexpr size_t kCacheLine = 64;

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Fetches the line of `p` so that this core may write it, without waiting. (For
// the baseline x86-64 target, the compiler turns its own prefetch for writing
// into one for reading, which leaves the line with the other core.)
inline void prefetch_for_write(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace npu
