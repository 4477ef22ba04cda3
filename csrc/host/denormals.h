// Whether the calling thread flushes denormal numbers, as
// torch.set_flush_denormal() sets it.
#pragma once

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace npu {

#if defined(__SSE__)
inline constexpr unsigned kFlushBits = 0x8040;  // results, and operands

inline bool flushes_denormals() {
  return (_mm_getcsr() & kFlushBits) == kFlushBits;
}
inline void flush_denormals(bool on) {
  const unsigned now = _mm_getcsr();
  const unsigned wanted = on ? now | kFlushBits : now & ~kFlushBits;
  if (now != wanted) [[unlikely]]
    _mm_setcsr(wanted);
}
#else
inline bool flushes_denormals() { return false; }
inline void flush_denormals(bool) {}
#endif

}  // namespace npu
