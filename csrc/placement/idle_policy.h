// Decides how long a thread that has nothing to do spins before it sleeps, from
// how long it had nothing to do before: a launcher without work, a host that
// waits. Pure: it is told the time and says what to do next.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "csrc/placement/tuning.h"

namespace npu {

// For a launcher. Times are ticks of any clock.
class IdlePolicy {
 public:
  explicit IdlePolicy(uint64_t ticks_per_us)
      : ticks_per_us_(ticks_per_us),
        longest_rest_((tuning::kShortestRestNs << tuning::kMostDoublings) *
                      ticks_per_us / 1000),
        mean_gap_(tuning::kMaxSpinUs * ticks_per_us / 4) {}

  // A gap begins: looks at the queue, with rests in between. True: there was
  // work, `gap` after the beginning. False: the launcher has to sleep.
  //
  // World has uint64_t ticks(), void pause(), bool work(), bool awaited():
  // whether somebody waits for the next task, uint64_t rest_ticks(): how long
  // to leave the queue alone otherwise, and grant(uint64_t ticks): an object
  // that exists while the launcher spins, and whose ticks() says for how long
  // of that it may.
  //
  // A caller that fills a slot at which this core has looked must first fetch
  // its line from this core, which costs as much as the whole rest of queueing
  // a task. A task that nobody waits for may as well be found together with
  // those that follow it.
  template <typename World>
  bool look(World& world, uint64_t& gap) {
    const auto grant = world.grant(longest_spin());
    const uint64_t start = world.ticks();
    for (uint64_t now = start;;) {
      const uint64_t round = now;
      if (round - start + longest_rest_ >= grant.ticks()) return false;
      const uint64_t rest_until = round + world.rest_ticks();
      bool awaited;
      while (!(awaited = world.awaited()) && now < rest_until) {
        world.pause();
        now = world.ticks();
      }
      for (int i = awaited ? kLooksWhileAwaited : 1; i > 0; --i) {
        if (world.work()) {
          gap = world.ticks() - start;
          average(gap);
          if (gap > short_spin_) be_patient();
          return true;
        }
        world.pause();
      }
      now = world.ticks();
      if (now - round > tuning::kPreemptedUs * ticks_per_us_)
        skipped_ = tuning::kSkipAfterPreemption;
    }
  }
  // The launcher has slept: work came `gap` after the gap began.
  void slept(uint64_t gap) {
    average(std::min(gap, 8 * tuning::kMaxSpinUs * ticks_per_us_));
    // A patient spin that ends in sleep costs the other core more than one that
    // finds work saves, so patience falls by more than it rises.
    if (gap < tuning::kPatientSpinUs * ticks_per_us_)
      be_patient();
    else
      patience_ = std::max(patience_ - 2, 0);
  }

  // Whether somebody waits, or did so a few tasks ago. `wanted` is the largest
  // number that anybody has waited for, `next` the task that comes next.
  static bool awaited(uint64_t wanted, uint64_t next) {
    return wanted + tuning::kHurriedTasks > next;
  }

  // How long to leave the queue alone. Looks cost callers time, and rests cost
  // time to whoever begins to wait during one. The sum of both costs is least
  // for a rest that grows as the square root of the time between waits. Of that
  // time, only the number of tasks since the last wait is known, so the rest
  // doubles whenever that number has grown fourfold.
  static uint64_t rest_ns(uint64_t wanted, uint64_t next) {
    const uint64_t periods =
        (next - std::min(wanted, next)) / tuning::kHurriedTasks;
    const int fourfold = std::bit_width(periods) / 2;
    return tuning::kShortestRestNs
           << std::min(fourfold, tuning::kMostDoublings);
  }

 private:
  static constexpr int kLooksWhileAwaited = 16;

  // For how long the launcher may spin at most: about four times the usual gap,
  // or longer while that has paid off, and a rest after it.
  uint64_t longest_spin() {
    const uint64_t most = tuning::kMaxSpinUs * ticks_per_us_;
    const uint64_t least = tuning::kMinSpinUs * ticks_per_us_;
    short_spin_ =
        mean_gap_ > most ? least : std::clamp(4 * mean_gap_, least, most);
    if (skipped_ > 0) {
      --skipped_;
      return 0;
    }
    return longest_rest_ + (patience_ > 0
                                ? tuning::kPatientSpinUs * ticks_per_us_
                                : short_spin_);
  }
  void average(uint64_t gap) { mean_gap_ = (7 * mean_gap_ + gap) / 8; }
  void be_patient() {
    patience_ = std::min(patience_ + 1, tuning::kMostPatience);
  }

  const uint64_t ticks_per_us_, longest_rest_;
  uint64_t mean_gap_;      // smoothed
  uint64_t short_spin_{};  // of this gap
  // How many gaps not to spin in after having been preempted in one.
  int skipped_ = 0;
  // Rises by one with each gap that only a patient spin outlasts, and falls by
  // two with each that not even that does; never below 0.
  int patience_ = 0;
};

// For a host wait that has outlasted the first spin.
//
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
