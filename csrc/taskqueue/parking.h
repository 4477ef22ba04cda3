// Where the one consumer of a queue sleeps while it has nothing to do.
#pragma once

#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/taskqueue/system.h"

namespace npu {

template <typename System>
class BasicParking {
 public:
  // Any thread, after publishing work. Without a sleeper: a load.
  void wake_if_parked() {
    System::light_fence();  // pairs with heavy_fence() in park()
    // Relaxed: the fences order it.
    if (parked_.load(std::memory_order_relaxed)) [[unlikely]]
      wake();
  }

  // The consumer: sleeps until woken, unless has_work() when about to sleep.
  // May return without work.
  template <typename HasWork>
  void park(HasWork has_work) {
    parked_.store(1, std::memory_order_relaxed);
    System::heavy_fence();  // pairs with light_fence() in wake_if_parked()
    // Either the producer saw parked_, or we see its work here.
    if (!has_work()) {
      // A producer that sees parked_ first sets it to 0, so the wait cannot
      // miss. Acquire: pairs with the release in wake().
      while (parked_.load(std::memory_order_acquire) == 1)
        System::futex_wait(&parked_, 1, 0);
    }
    parked_.store(0, std::memory_order_relaxed);
  }

 private:
  // One wake-up per sleep, however many producers see the flag.
  [[gnu::noinline]] void wake() {
    // Release: the consumer's acquire load of 0 orders our publish before its
    // next look.
    if (parked_.exchange(0, std::memory_order_release) == 1)
      System::futex_wake_all(&parked_);
  }

  // 1 while the consumer sleeps; whoever exchanges it to 0 must wake it.
  alignas(kCacheLine) typename System::template Atomic<uint32_t> parked_{0};
};

using Parking = BasicParking<System>;

}  // namespace npu
