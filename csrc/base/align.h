// The size that keeps two threads' words off one cache line.
#pragma once

#include <cstddef>

namespace npu {

inline constexpr size_t kCacheLine = 64;

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace npu
