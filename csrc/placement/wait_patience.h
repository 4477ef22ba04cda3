// Decides for how long a host wait goes on spinning where it has outlasted the
// first spin, from the waits before it. Pure: it is told how long they took.
#pragma once

#include <algorithm>
#include <cstdint>

#include "csrc/placement/tuning.h"

namespace npu {

// To fall asleep and to be woken costs some 40 us in a virtual machine. A loop
// that waits for a value in each round, as one that draws tokens does, saves
// that where its waits are short: it then has a core for itself anyway. Where
// they are long, or become long because the thread loses its core, it does not
// spin.
class WaitPatience {
 public:
  // 0: it is better to sleep.
  uint64_t spin_ns() const {
    return mean_ns_ <= tuning::kPatientWaitNs ? 2 * mean_ns_ : 0;
  }
  // A wait has ended, `ns` after it outlasted the first spin.
  void waited(uint64_t ns) {
    mean_ns_ = (7 * mean_ns_ + std::min(ns, kLongNs)) / 8;
  }

 private:
  // What a single long wait counts for: after it, a few short ones suffice.
  static constexpr uint64_t kLongNs = 4 * tuning::kPatientWaitNs;
  uint64_t mean_ns_ = kLongNs;  // smoothed
};

}  // namespace npu
