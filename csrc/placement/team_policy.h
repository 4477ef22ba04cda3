// Decides how often OpenMP's teams may be ended and made again. Pure: it is
// told the time.
#pragma once

#include <algorithm>
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

  // What to do where somebody launched at `asked` last, and a kernel had a team
  // at `used`, without which nobody spins; 0: never.
  Step step(uint64_t now, uint64_t asked, uint64_t used) {
    const bool wanted = now < ends(asked, used);
    if (wanted == there_) return Step::kNone;
    there_ = wanted;
    return wanted ? Step::kGather : Step::kDisperse;
  }
  bool there() const { return there_; }
  // After how long to call step() again; 0: when somebody asks.
  uint64_t again(uint64_t now, uint64_t asked, uint64_t used) const {
    return there_ ? ends(asked, used) - now : 0;
  }
  // When nobody needs that team any more.
  static uint64_t ends(uint64_t asked, uint64_t used) {
    if (!asked || !used) return 0;
    return std::min(asked + tuning::kCrowdStaysNs, used + tuning::kTeamStaysNs);
  }

 private:
  bool there_ = false;
};

}  // namespace npu
