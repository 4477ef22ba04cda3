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

  // What to do where somebody asked for that team at `asked` last; 0: never.
  Step step(uint64_t now, uint64_t asked) {
    const bool wanted = asked && now < asked + tuning::kCrowdStaysNs;
    if (wanted == there_) return Step::kNone;
    there_ = wanted;
    return wanted ? Step::kGather : Step::kDisperse;
  }
  bool there() const { return there_; }
  // After how long to call step() again, if nobody asks; 0: not before somebody
  // does.
  uint64_t again(uint64_t now, uint64_t asked) const {
    return there_ ? asked + tuning::kCrowdStaysNs - now : 0;
  }

 private:
  bool there_ = false;
};

}  // namespace npu
