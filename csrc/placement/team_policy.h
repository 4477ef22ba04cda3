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

// How long a thread has waited for a core in all, and how often it got one.
struct CoreWaits {
  uint64_t ns = 0, times = 0;
};

// From what a launcher sees: until when somebody else needs a core, so that no
// thread of a team may spin; 0: nobody is known to.
class OtherWork {
 public:
  // The launcher goes on after a pause, where `tail` tasks have been submitted.
  // The pause counts unless it was long.
  void wakes(uint64_t now, uint64_t tail) {
    if (!often(now, tail)) begin(now, tail);
  }
  // A caller that launches one task after the other.
  uint64_t launches(uint64_t now, uint64_t tail) {
    if (tail - tail_ < tuning::kManyLaunches) return 0;
    const bool is_often = often(now, tail);
    begin(now, tail);
    return is_often ? now + tuning::kCrowdStaysNs : 0;
  }

  // Whether it is time to ask how long the launcher has waited for a core.
  bool asks(uint64_t now) const {
    return now - asked_ >= tuning::kBetweenWaitsNs;
  }
  // Another process that has work for the launcher's core, twice in a row, and
  // keeps it for long. The team's own threads, which sleep after each loop, do
  // not keep it, and where they begin to spin they soon have another.
  uint64_t waited(uint64_t now, const CoreWaits& waits) {
    const uint64_t ns = waits.ns - waits_.ns,
                   times = waits.times - waits_.times;
    const bool shared = ns * tuning::kWaitPart > now - asked_ &&
                        ns > times * tuning::kLongWaitNs;
    waits_ = waits;
    asked_ = now;
    const bool again = shared && shared_;
    shared_ = shared;
    return again ? now + tuning::kNeighboursStayNs : 0;
  }

 private:
  bool often(uint64_t now, uint64_t tail) const {
    return now - from_ < (tail - tail_) * tuning::kSeldomNs;
  }
  void begin(uint64_t now, uint64_t tail) {
    from_ = now;
    tail_ = tail;
  }

  uint64_t from_ = 0, tail_ = 0;  // of the launches that it counts
  uint64_t asked_ = 0;
  CoreWaits waits_;  // until then
  bool shared_ = false;
};

// For the team that exists only to make libgomp count more threads.
class Crowd {
 public:
  enum class Step { kNone, kGather, kDisperse };

  // What to do where nobody may spin until `asked`, and a kernel had a team at
  // `used`, without which nobody does; 0: never.
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
    return used ? std::min(asked, used + tuning::kTeamStaysNs) : 0;
  }

 private:
  bool there_ = false;
};

}  // namespace npu
