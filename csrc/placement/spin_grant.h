// How long a thread may spin before it sleeps.
#pragma once

#include <cstdint>

#include "csrc/base/clock.h"
#include "csrc/placement/this_machine.h"

namespace npu {

// Exists while the thread spins. Where there is no quota, it reads no clock.
class SpinGrant {
 public:
  explicit SpinGrant(uint64_t ticks) : ticks_(ticks) {
    Policy& p = policy();
    if (p.spins() && !p.spin_is_limited()) [[likely]]
      return;
    limited_ = p.spin_is_limited();
    began_ = now_ns();
    ns_ = p.spin(began_, ticks_to_ns(ticks));
    ticks_ = ns_to_ticks(ns_);
  }
  ~SpinGrant() {
    if (!limited_) [[likely]]
      return;
    const uint64_t spun = now_ns() - began_;
    if (spun < ns_) policy().unused_spin(began_, ns_ - spun);
  }
  SpinGrant(const SpinGrant&) = delete;

  // At most what was asked for; 0: not at all.
  uint64_t ticks() const { return ticks_; }

 private:
  uint64_t ticks_;
  bool limited_ = false;
  uint64_t began_ = 0, ns_ = 0;
};

}  // namespace npu
