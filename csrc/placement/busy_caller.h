// Whether a stream's callers need a core of their own beside its kernels.
#pragma once

#include <cstdint>

#include "csrc/placement/tuning.h"

namespace npu {

// It is told now and then how far the queue has been filled, and has no clock
// of its own.
class BusyCaller {
 public:
  // Returns whether callers have been launching for some milliseconds now.
  // `tail`: tasks submitted so far; `waiting`: whether somebody sleeps until
  // one is done; `now` in ns. A caller that waits after each step of a few
  // milliseconds is not busy: most of the time the kernels have the cores for
  // themselves.
  bool look(uint64_t now, uint64_t tail, bool waiting) {
    const uint64_t launching_ns = (tail - seen_) * tuning::kMostPerTaskNs;
    if (waiting || launching_ns < now - seen_at_) since_ = now;
    seen_ = tail;
    seen_at_ = now;
    return now - since_ >= tuning::kLaunchesForNs;
  }

 private:
  uint64_t seen_at_ = 0, seen_ = 0;
  uint64_t since_ = 0;  // the last time when no caller was launching
};

}  // namespace npu
