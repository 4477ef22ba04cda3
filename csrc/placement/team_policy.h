// How often OpenMP's teams may be ended and made again. Pure: told the time.
#pragma once

#include <cstdint>

#include "csrc/placement/tuning.h"

namespace npu {

// A thread's own team.
class TeamEnds {
 public:
  // Whether the thread, about to sleep, ends it.
  bool due(uint64_t now) {
    if (now < next_) return false;
    next_ = now + tuning::kTeamPauseNs;
    return true;
  }

 private:
  uint64_t next_ = 0;
};

// The team that only makes libgomp count more threads.
class Crowd {
 public:
  enum class Step { kNone, kGather, kDisperse };

  // What to do while so many wish for it.
  Step step(uint64_t now, uint32_t wishes) {
    if ((wishes > 0) == there_ || now < next_) return Step::kNone;
    there_ = !there_;
    if (there_) return Step::kGather;
    next_ = now + tuning::kCrowdPauseNs;
    return Step::kDisperse;
  }
  // When to ask again while the wishes are the same; 0: not before they differ.
  uint64_t again(uint32_t wishes) const {
    return (wishes > 0) == there_ ? 0 : next_;
  }

 private:
  bool there_ = false;
  uint64_t next_ = 0;
};

}  // namespace npu
