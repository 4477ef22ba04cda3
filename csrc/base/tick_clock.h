// A clock for one thread that reads ticks() anyway.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"

namespace npu {

// CLOCK_MONOTONIC, read once a millisecond and continued by ticks in between.
// It is off by less than a microsecond, or behind by as long as the thread was
// preempted while it read the clock.
class TickClock {
 public:
  TickClock()
      : ns_per_tick_(ns_per_tick()), life_(uint64_t(1e6 / ns_per_tick_)) {}

  // The time at `tick`, which was read just now.
  uint64_t ns(uint64_t tick) {
    if (tick - tick_ < life_) [[likely]]
      return ns_ + uint64_t(double(tick - tick_) * ns_per_tick_);
    ns_ = now_ns();
    tick_ = ticks();
    return ns_;
  }

 private:
  const double ns_per_tick_;
  const uint64_t life_;
  uint64_t tick_ = 0, ns_ = 0;
};

}  // namespace npu
