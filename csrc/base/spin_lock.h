// The shortest lock: one exchange to take, one store to give back.
#pragma once

#include <sched.h>

#include <atomic>

#include "csrc/base/clock.h"

namespace npu {

// For critical sections of tens of nanoseconds, which never allocate, wait or
// call out. Spins, then yields, so that a preempted holder gets the core back.
//
// Memory order: what a holder wrote before unlock() is visible to the next one
// after lock() (release in unlock, acquire in the exchange).
class SpinLock {
 public:
  void lock() {
    for (int spins = 0; busy_.exchange(true, std::memory_order_acquire);) {
      // Wait by loads: exchanges would keep taking the line away.
      while (busy_.load(std::memory_order_relaxed)) {
        if (++spins < 64) {
          pause();
        } else {
          sched_yield();
        }
      }
    }
  }
  bool try_lock() { return !busy_.exchange(true, std::memory_order_acquire); }
  void unlock() { busy_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> busy_{false};
};

}  // namespace npu
