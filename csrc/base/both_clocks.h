// Two clocks, read at one moment.
#pragma once

#include <cstdint>

namespace npu {

template <class Outer, class Inner>
struct BothClocks {
  Outer outer;
  Inner inner;
};

// Takes the closest of several readings, since a thread may lose its core
// between two clocks: `inner` is read between two readings of `outer`.
template <class Outer, class Inner>
auto read_both(Outer outer, Inner inner) {
  BothClocks<decltype(outer()), decltype(inner())> best{};
  uint64_t closest = UINT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const auto before = outer();
    const auto between = inner();
    const uint64_t apart = uint64_t(outer() - before);
    if (apart >= closest) continue;
    closest = apart;
    best = {before + apart / 2, between};
  }
  return best;
}

}  // namespace npu
