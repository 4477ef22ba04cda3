// Limits how much of something is used in each window of time.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace npu {

// Any thread. What is taken at the end of a window may be used in the next one.
class Budget {
 public:
  Budget(uint64_t per_window, uint64_t window_ns)
      : most_(std::min<uint64_t>(per_window, UINT32_MAX)),
        window_ns_(window_ns) {}

  // Takes up to `wanted` from what is left in the window of `now`; returns how
  // much.
  uint64_t take(uint64_t now, uint64_t wanted) {
    // Relaxed: a count that orders nothing.
    uint64_t seen = state_.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t begun = at(now, seen);
      const uint64_t got = std::min(wanted, most_ - uint32_t(begun));
      if (!got || state_.compare_exchange_weak(seen, begun + got,
                                               std::memory_order_relaxed))
        return got;
    }
  }
  // Gives back what was taken and not used, if its window has not ended.
  void give_back(uint64_t taken_at, uint64_t unused) {
    uint64_t seen = state_.load(std::memory_order_relaxed);
    while (seen >> 32 == uint32_t(taken_at / window_ns_) &&
           !state_.compare_exchange_weak(
               seen, seen - std::min<uint64_t>(unused, uint32_t(seen)),
               std::memory_order_relaxed)) {
    }
  }

 private:
  // The state at time `now`. A thread may read its clock before another and use
  // it after that one, so a `now` a little in the past leaves the newer window
  // in place. A window's number has 32 bits and wraps, so it is compared by
  // difference; the first one may have any number.
  uint64_t at(uint64_t now, uint64_t state) const {
    constexpr uint32_t kLate = 1000;
    const auto window = uint32_t(now / window_ns_);
    const uint32_t behind = uint32_t(state >> 32) - window;
    return behind < kLate ? state : uint64_t{window} << 32;
  }

  const uint64_t most_, window_ns_;
  // The window's number, and below it what has been taken.
  std::atomic<uint64_t> state_{0};
};

}  // namespace npu
