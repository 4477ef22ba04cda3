// Decides how often OpenMP's teams may be ended and made again. Pure: it is
// told the time.
#pragma once

#include <cstdint>

#include "csrc/placement/tuning.h"

namespace npu {

// For a thread's own team.
class TeamEnds {
 public:
  // Whether the thread, which is about to sleep, has to end its team.
  bool due(uint64_t now) {
    if (now < next_) return false;
    next_ = now + tuning::kTeamPauseNs;
    return true;
  }

 private:
  uint64_t next_ = 0;
};

// For the team that exists only to make libgomp count more threads.
class Crowd {
 public:
  enum class Step { kNone, kGather, kDisperse };

  // What to do while `wishes` threads ask for that team.
  Step step(uint64_t now, uint32_t wishes) {
    if ((wishes > 0) == there_ || now < next_) return Step::kNone;
    there_ = !there_;
    if (there_) return Step::kGather;
    next_ = now + tuning::kCrowdPauseNs;
    return Step::kDisperse;
  }
  // When to call step() again if the wishes stay the same; 0: not before they
  // change.
  uint64_t again(uint32_t wishes) const {
    return (wishes > 0) == there_ ? 0 : next_;
  }

 private:
  bool there_ = false;
  uint64_t next_ = 0;
};

}  // namespace npu
