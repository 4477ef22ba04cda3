// Decides whether the next replay of a graph runs on one core or on several, by
// how long the last ones took. Pure: it reads no clock.
#pragma once

#include <algorithm>
#include <cstdint>

namespace npu {

class ParallelPolicy {
 public:
  enum class How : uint8_t {
    kTimed,     // on one core, and each node is timed
    kInTurn,    // on one core
    kParallel,  // on several
  };

  // Replays of either kind that are compared, and from which replay on nodes
  // are timed: the first ones bind arguments. What runs in parallel must be
  // faster by a kWorth-th to be chosen. A choice stays for kLeastStay replays,
  // then for twice as many each time that it is confirmed. bench/graphs.py.
  static constexpr uint32_t kCompared = 5, kTimedReplays = 1 + kCompared,
                            kWorth = 33;
  static constexpr uint32_t kLeastStay = 64, kMostStay = 4096;
  // A shorter graph does not: to wake a helper takes as long.
  static constexpr uint64_t kLeastNs = 30'000;

  How next() const { return next_; }

  // Before the first comparison, which is after all timed replays: how long a
  // replay takes on one core, and how long on several at best. False: it is
  // never worth it.
  bool predicted(uint64_t in_turn_ns, uint64_t parallel_ns) {
    worth_it_ = in_turn_ns >= kLeastNs &&
                parallel_ns + parallel_ns / kWorth < in_turn_ns;
    stage_ = worth_it_ ? Stage::kFirst : Stage::kDecided;
    next_ = worth_it_ ? How::kParallel : How::kInTurn;
    runs_ = 0;
    return worth_it_;
  }

  // A replay of the kind that next() has told took so long. True: it was the
  // last of the timed ones.
  bool took(uint64_t ns) {
    if (stage_ == Stage::kTimes) return ++runs_ == kTimedReplays;
    if (!worth_it_) return false;
    uint64_t& least = next_ == How::kParallel ? parallel_ : in_turn_;
    least = std::min(least, ns);
    if (++runs_ < (stage_ == Stage::kDecided ? stay_ : kCompared)) return false;
    runs_ = 0;
    go_on();
    return false;
  }

 private:
  enum class Stage : uint8_t { kTimes, kFirst, kSecond, kDecided };
  static constexpr uint64_t kNone = ~uint64_t{0};

  void go_on() {
    const How other = next_ == How::kParallel ? How::kInTurn : How::kParallel;
    if (stage_ == Stage::kDecided) {
      // What has been measured meanwhile, in a longer time, says nothing of
      // the moment in which the two are compared.
      parallel_ = in_turn_ = kNone;
      stage_ = Stage::kFirst;
    } else if (stage_ == Stage::kFirst) {
      stage_ = Stage::kSecond;
      next_ = other;
    } else {
      stage_ = Stage::kDecided;
      const How best = parallel_ + parallel_ / kWorth < in_turn_
                           ? How::kParallel
                           : How::kInTurn;
      stay_ = best == best_ ? std::min(2 * stay_, kMostStay) : kLeastStay;
      next_ = best_ = best;
    }
  }

  Stage stage_ = Stage::kTimes;
  How next_ = How::kTimed, best_ = How::kTimed;
  bool worth_it_ = false;
  uint32_t runs_ = 0, stay_ = kLeastStay;
  uint64_t parallel_ = kNone, in_turn_ = kNone;
};

}  // namespace npu
