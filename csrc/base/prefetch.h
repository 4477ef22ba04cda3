// Asks for a cache line before it is written.
#pragma once

namespace npu {

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
