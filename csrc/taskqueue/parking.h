// Where the one consumer of a queue sleeps while it has nothing to do.
#pragma once

#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/taskqueue/system.h"

namespace npu {

template <typename System>
class BasicParking {
 public:
  // Whether the caller, which has just published work, has to call wake(). Any
  // thread.
  bool needs_wake() {
    System::light_fence();  // pairs with heavy_fence() in park() and leave()
    // Relaxed: the fences order it.
    return parked_.load(std::memory_order_relaxed);
  }

  // For a producer. There is one wake-up per sleep, however many threads see
  // the flag: the one that changes it to kWaking has the consumer and
  // placement_ to itself. Returns false where the consumer has left: the caller
  // then has to provide another one.
  [[gnu::noinline]] bool wake() {
    uint32_t found;
    if (!claim(found)) return found != kGone;
    placement_.before_wake();
    finish_wake();
    return true;
  }

  // For any other thread: a driver's that reports an end, or one that stops the
  // stream. It produces nothing, so the consumer need not keep off its CPU.
  void wake_if_parked() {
    if (uint32_t found; needs_wake() && claim(found)) finish_wake();
  }

  // Puts the consumer, which calls it, to sleep until it is woken; not where
  // has_work() is true just before. May return without work.
  template <typename HasWork>
  void park(HasWork has_work) {
    if (!System::may_fence()) return System::nap();
    placement_.before_sleep();
    // Release: a waker that sees kAsleep may use placement_.
    parked_.store(kAsleep, std::memory_order_release);
    System::heavy_fence();  // pairs with light_fence() in needs_wake()
    // Either the producer saw parked_, or we see its work here.
    if (has_work() && withdraw()) return placement_.after_sleep();
    // A thread that sees kAsleep ends by storing kAwake, which is 0, so the
    // wait cannot miss its wake-up. Acquire: pairs with the release in
    // finish_wake().
    while (const uint32_t seen = parked_.load(std::memory_order_acquire))
      System::futex_wait(&parked_, seen, 0);
    placement_.after_sleep();
  }

  // Called by the consumer, awake, before it ends. Returns false, with nothing
  // changed, where there is work by now. After true, wake() returns false to
  // whoever publishes work.
  template <typename HasWork>
  bool leave(HasWork has_work) {
    // Relaxed: a producer that sees kGone does not use placement_; the start
    // and the end of threads order everything else.
    parked_.store(kGone, std::memory_order_relaxed);
    System::heavy_fence();  // pairs with light_fence() in needs_wake()
    // Either the producer saw kGone, or we see its work here.
    if (!has_work()) return true;
    parked_.store(kAwake, std::memory_order_relaxed);
    return false;
  }

  // Called by each consumer before its first look for work.
  void enter() {
    placement_.forget_sleeper();
    parked_.store(kAwake, std::memory_order_relaxed);  // it was kGone
  }

 private:
  enum : uint32_t { kAwake, kAsleep, kWaking, kGone };

  // Returns whether the caller is to wake the consumer; if not, `found` is why.
  bool claim(uint32_t& found) {
    found = kAsleep;
    // Acquire: pairs with the release in park().
    return parked_.compare_exchange_strong(found, kWaking,
                                           std::memory_order_acquire);
  }
  void finish_wake() {
    // Release: the consumer's acquire load of parked_ orders our publish before
    // its next look, and our use of placement_ before its own use.
    parked_.store(kAwake, std::memory_order_release);
    System::futex_wake_all(&parked_);
  }

  // Lets the consumer take the flag back, unless somebody is waking it.
  bool withdraw() {
    uint32_t asleep = kAsleep;
    // Relaxed: the exchange publishes nothing.
    return parked_.compare_exchange_strong(asleep, kAwake,
                                           std::memory_order_relaxed);
  }

  alignas(kCacheLine)
      typename System::template Atomic<uint32_t> parked_{kAwake};
  typename System::WakePlacement placement_;
};

using Parking = BasicParking<System>;

}  // namespace npu
