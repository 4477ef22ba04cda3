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
    placement_.before_sleep();
    // Release: a waker that sees it may use placement_.
    parked_.store(kAsleep, std::memory_order_release);
    System::heavy_fence();  // pairs with light_fence() in wake_if_parked()
    // Either the producer saw parked_, or we see its work here.
    if (has_work() && withdraw()) return placement_.after_sleep();
    // A producer that sees parked_ ends with setting it to 0, so the wait
    // cannot miss. Acquire: pairs with the last release in wake().
    while (const uint32_t seen = parked_.load(std::memory_order_acquire))
      System::futex_wait(&parked_, seen, 0);
    placement_.after_sleep();
  }

 private:
  enum : uint32_t { kAwake, kAsleep, kWaking };

  // The consumer takes the flag back, unless a producer is waking it.
  bool withdraw() {
    uint32_t asleep = kAsleep;
    // Relaxed: nothing is published by it.
    return parked_.compare_exchange_strong(asleep, kAwake,
                                           std::memory_order_relaxed);
  }

  // One wake-up per sleep, however many producers see the flag: whoever
  // changes it to kWaking has the consumer and placement_ to itself.
  [[gnu::noinline]] void wake() {
    uint32_t asleep = kAsleep;
    // Acquire: pairs with the release in park().
    if (!parked_.compare_exchange_strong(asleep, kWaking,
                                         std::memory_order_acquire))
      return;
    placement_.before_wake();
    // Release: the consumer's acquire load of it orders our publish before
    // its next look, and our use of placement_ before its own.
    parked_.store(kAwake, std::memory_order_release);
    System::futex_wake_all(&parked_);
  }

  alignas(kCacheLine)
      typename System::template Atomic<uint32_t> parked_{kAwake};
  typename System::WakePlacement placement_;
};

using Parking = BasicParking<System>;

}  // namespace npu
