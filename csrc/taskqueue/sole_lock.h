// Locks for critical sections of tens of nanoseconds. A SoleLock costs its
// first thread no locked instruction until a second thread uses it
// (sole_user.h): most programs launch, and so allocate and free, on one thread.
#pragma once

#include <cstdint>

#include "csrc/taskqueue/sole_user.h"
#include "csrc/taskqueue/system.h"

namespace npu {

// Holders never allocate, wait or call out, so it spins a moment; a holder that
// is still inside then has been preempted, and the waiter sleeps until it has
// left. (Who spins with sched_yield() at real-time priority keeps the CPU from
// a holder of lower priority, for ever.)
//
// Memory order: what a holder wrote before unlock() is visible to the next one
// after lock(): release in unlock(), acquire wherever kFree is replaced.
template <typename System, int kSpins = 64>
class BasicSleepLock {
 public:
  void lock() {
    if (!take()) [[unlikely]]
      wait();
  }
  void unlock() {
    if (state_.exchange(kFree, std::memory_order_release) == kWaitedFor)
        [[unlikely]]
      System::futex_wake_all(&state_);
  }

 private:
  enum : uint32_t { kFree, kHeld, kWaitedFor };

  bool take() {
    uint32_t state = kFree;
    return state_.compare_exchange_strong(state, kHeld,
                                          std::memory_order_acquire);
  }

  [[gnu::noinline]] void wait() {
    for (int spins = 0; spins < kSpins; ++spins) {
      pause();
      // Relaxed: take() acquires. A plain load does not steal the line.
      if (state_.load(std::memory_order_relaxed) == kFree && take()) return;
    }
    // A thread that may have slept takes the lock as kWaitedFor, because other
    // threads may still sleep; if none does, one wake-up is wasted. A holder
    // that replaces kWaitedFor wakes a sleeper. futex_wait() sleeps only if the
    // word is still kWaitedFor, so no wake-up is missed.
    while (state_.exchange(kWaitedFor, std::memory_order_acquire) != kFree)
      System::futex_wait(&state_, kWaitedFor, 0);
  }

  typename System::template Atomic<uint32_t> state_{kFree};
};

using SleepLock = BasicSleepLock<System>;

template <typename System, int kSpins = 64>
class BasicSoleLock {
 public:
  void lock() {
    if (sole_.enter()) [[likely]]
      return;
    shared_.lock();
    // Only the holder of the lock reads it, and no sole user is inside any
    // more.
    is_shared_ = true;
  }
  void unlock() {
    if (is_shared_) [[unlikely]]
      shared_.unlock();
    else
      sole_.leave();
  }
  // Like unlock(), in a forked child, by the thread that held it in the parent.
  void unlock_in_child() {
    if (is_shared_)
      shared_.unlock();
    else
      sole_.end_in_child();
  }

 private:
  SoleUser<System> sole_;
  BasicSleepLock<System, kSpins> shared_;
  bool is_shared_ = false;
};

using SoleLock = BasicSoleLock<System>;

}  // namespace npu
