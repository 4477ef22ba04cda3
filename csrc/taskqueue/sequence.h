// A counter that only grows and can be waited for: "has it reached n?"
#pragma once

#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/taskqueue/system.h"

namespace npu {

// One thread at a time advances; any thread reads and waits.
//
// Memory order: everything the advancing thread did before advance_to(n) is
// visible to a thread for which reached(n) or wait(n) returned true (release
// in advance_to, acquire in the load).
template <typename System>
class BasicSequence {
 public:
  static constexpr uint64_t kNobody = ~uint64_t{0};

  explicit BasicSequence(uint64_t first = 0) : value_(first) {}

  uint64_t value() const { return value_.load(std::memory_order_acquire); }
  bool reached(uint64_t target) const { return value() >= target; }

  // Called by the counter's only writer. Makes a system call only where
  // somebody sleeps for a number that has now been reached. True when somebody
  // waited for one.
  bool advance_to(uint64_t value) {
    value_.store(value, std::memory_order_release);
    System::light_fence();  // pairs with heavy_fence() in arm()
    if (value < wake_at_.load(std::memory_order_relaxed)) [[likely]]
      return false;
    wake();
    return true;
  }

  // Says that somebody waits for `target`, or polls for it. Any thread.
  void want(uint64_t target) {
    // Relaxed: a hint to look more often; nothing is ordered by it.
    uint64_t wanted = wanted_.load(std::memory_order_relaxed);
    while (wanted < target && !wanted_.compare_exchange_weak(
                                  wanted, target, std::memory_order_relaxed)) {
    }
  }
  // The largest number that anybody has wanted.
  uint64_t wanted() const { return wanted_.load(std::memory_order_relaxed); }

  // Sleeps until the target is reached, a signal arrives or `timeout_ns`
  // (0: none) has passed, whichever is first. True when it was reached. Naps
  // before that where others have called too many heavy fences.
  [[gnu::noinline]] bool sleep(uint64_t target, uint64_t timeout_ns);

  // Makes advance_to(target) return true, for one call at or above the target.
  // True: the target has been reached, perhaps before advance_to() knew.
  bool arm(uint64_t target);
  // Like arm(), for the advancing thread and a number that it has not reached.
  void rearm(uint64_t target) { lower(target); }

 private:
  void lower(uint64_t target) {
    // Relaxed: the fences order it, or, on the advancing thread, program order.
    uint64_t at = wake_at_.load(std::memory_order_relaxed);
    while (at > target && !wake_at_.compare_exchange_weak(
                              at, target, std::memory_order_relaxed)) {
    }
  }
  [[gnu::noinline]] void wake();

  template <typename T>
  using Atomic = typename System::template Atomic<T>;

  alignas(kCacheLine) Atomic<uint64_t> value_;
  // The smallest number that a sleeper waits for.
  Atomic<uint64_t> wake_at_{kNobody};
  // Counts wake-ups, and is the word on which sleepers sleep. (Not the value
  // itself: a wake-up for one sleeper withdraws the target of another that is
  // just about to sleep, and only a change of this word keeps that one awake.)
  Atomic<uint32_t> wakes_{0};
  Atomic<uint64_t> wanted_{0};
};

template <typename System>
bool BasicSequence<System>::arm(uint64_t target) {
  want(target);
  lower(target);
  System::heavy_fence();  // pairs with light_fence() in advance_to()
  // Either advance_to() saw our target, or we see its value here.
  return reached(target);
}

template <typename System>
bool BasicSequence<System>::sleep(uint64_t target, uint64_t timeout_ns) {
  for (;;) {
    for (; !System::may_fence(); System::nap())
      if (reached(target)) return true;
    // Acquire: a wake-up counted here has already withdrawn the targets it
    // withdraws, so it cannot withdraw the one set below.
    const uint32_t wakes = wakes_.load(std::memory_order_acquire);
    if (arm(target)) return true;
    const Woken woken = System::futex_wait(&wakes_, wakes, timeout_ns);
    if (reached(target)) return true;
    if (woken != Woken::kMaybeChanged) return false;
  }
}

template <typename System>
void BasicSequence<System>::wake() {
  // Every sleeper looks again; one that waits for more registers again.
  wake_at_.store(kNobody, std::memory_order_relaxed);
  // Release: pairs with the acquire in sleep().
  wakes_.fetch_add(1, std::memory_order_release);
  System::futex_wake_all(&wakes_);
}

using Sequence = BasicSequence<System>;

}  // namespace npu
