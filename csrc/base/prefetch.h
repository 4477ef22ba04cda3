// Asks for a cache line before it is written.
#pragma once

namespace npu {

// Fetches the line of `p` so that this core may write it, without waiting.
// (The compiler's own prefetch for writing is one for reading where the target
// is any x86-64: it leaves the other core's copy where it is.)
inline void prefetch_for_write(const void* p) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(p)));
#else
  __builtin_prefetch(p, 1);
#endif
}

}  // namespace npu
