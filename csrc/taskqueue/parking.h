// Where the one consumer of a queue sleeps while it has nothing to do.
#pragma once

#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/taskqueue/system.h"

namespace npu {

template <typename System>
class BasicParking {
 public:
  // Any thread, after publishing work: whether it is to call wake().
  bool needs_wake() {
    System::light_fence();  // pairs with heavy_fence() in park() and leave()
    // Relaxed: the fences order it.
    return parked_.load(std::memory_order_relaxed);
  }

  // Of a producer. One wake-up per sleep, however many see the flag: whoever
  // changes it to kWaking has the consumer and placement_ to itself. False: the
  // consumer has left, and somebody is to take its place.
  [[gnu::noinline]] bool wake() {
    uint32_t found;
    if (!claim(found)) return found != kGone;
    placement_.before_wake();
    finish_wake();
    return true;
  }

  // Of any other thread: a driver's, which reports an end, or one that stops
  // the stream. It produces nothing, so the consumer need not keep off its CPU.
  void wake_if_parked() {
    if (uint32_t found; needs_wake() && claim(found)) finish_wake();
  }

  // The consumer: sleeps until woken, unless has_work() when about to sleep.
  // May return without work.
  template <typename HasWork>
  void park(HasWork has_work) {
    placement_.before_sleep();
    // Release: a waker that sees it may use placement_.
    parked_.store(kAsleep, std::memory_order_release);
    System::heavy_fence();  // pairs with light_fence() in needs_wake()
    // Either the producer saw parked_, or we see its work here.
    if (has_work() && withdraw()) return placement_.after_sleep();
    // A producer that sees parked_ ends with setting it to 0, so the wait
    // cannot miss. Acquire: pairs with the release in finish_wake().
    while (const uint32_t seen = parked_.load(std::memory_order_acquire))
      System::futex_wait(&parked_, seen, 0);
    placement_.after_sleep();
  }

  // The consumer, awake, is to end. False, with nothing changed, where there is
  // work by now; else whoever publishes some is told so by wake().
  template <typename HasWork>
  bool leave(HasWork has_work) {
    // Relaxed: nobody uses placement_ on seeing it; start and end of threads
    // order the rest.
    parked_.store(kGone, std::memory_order_relaxed);
    System::heavy_fence();  // pairs with light_fence() in needs_wake()
    // Either the producer saw kGone, or we see its work here.
    if (!has_work()) return true;
    parked_.store(kAwake, std::memory_order_relaxed);
    return false;
  }
  // The CPU of the producer that woke it last; -1: none has. The consumer,
  // awake.
  int waker() const { return placement_.waker(); }

  // The consumer that comes next, before its first look for work.
  void enter() { parked_.store(kAwake, std::memory_order_relaxed); }

 private:
  enum : uint32_t { kAwake, kAsleep, kWaking, kGone };

  // Whether the wake-up is ours; if not, `found` tells why.
  bool claim(uint32_t& found) {
    found = kAsleep;
    // Acquire: pairs with the release in park().
    return parked_.compare_exchange_strong(found, kWaking,
                                           std::memory_order_acquire);
  }
  void finish_wake() {
    // Release: the consumer's acquire load of it orders our publish before
    // its next look, and our use of placement_ before its own.
    parked_.store(kAwake, std::memory_order_release);
    System::futex_wake_all(&parked_);
  }

  // The consumer takes the flag back, unless a producer is waking it.
  bool withdraw() {
    uint32_t asleep = kAsleep;
    // Relaxed: nothing is published by it.
    return parked_.compare_exchange_strong(asleep, kAwake,
                                           std::memory_order_relaxed);
  }

  alignas(kCacheLine)
      typename System::template Atomic<uint32_t> parked_{kAwake};
  typename System::WakePlacement placement_;
};

using Parking = BasicParking<System>;

}  // namespace npu
