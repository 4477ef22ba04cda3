#include "csrc/placement/helper.h"

#include "csrc/base/clock.h"
#include "csrc/base/futex.h"
#include "csrc/placement/tuning.h"

namespace npu {

bool Helper::offer(Loop& loop, bool wakes) {
  uint32_t was = word_.load(std::memory_order_relaxed);
  // Acquire: the launcher that had the helper before has written loop_.
  if ((was != kReady && (was != kAsleep || !wakes)) ||
      !word_.compare_exchange_strong(was, kClaimed, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return false;
  loop_ = &loop;
  if (was == kAsleep) placement_.before_wake();
  // Release: the helper reads loop_, the loop and its placement.
  word_.store(kOffered, std::memory_order_release);
  if (was == kAsleep) futex_wake_all(&word_);
  return true;
}

void Helper::take_back() {
  uint32_t was = kOffered;
  // Release, here and below: the next launcher writes loop_. Acquire, here and
  // below: what the pieces wrote.
  if (word_.compare_exchange_strong(was, kReady, std::memory_order_release,
                                    std::memory_order_acquire))
    return;
  const uint64_t patient_until = now_ns() + tuning::kHelperWaitSpinNs;
  while (was == kTaken) {
    if (now_ns() < patient_until)
      pause();
    else
      sleep_until_left();
    was = word_.load(std::memory_order_acquire);
  }
  // The helper may go meanwhile; nobody else uses the word then.
  if (was != kLeft ||
      !word_.compare_exchange_strong(was, kReady, std::memory_order_release,
                                     std::memory_order_acquire))
    word_.store(kNobody, std::memory_order_release);
}

bool Helper::come() {
  uint32_t was = word_.load(std::memory_order_relaxed);
  // Acquire: what the launcher of the last one here wrote.
  return was == kNobody &&
         word_.compare_exchange_strong(was, kReady, std::memory_order_acquire,
                                       std::memory_order_relaxed);
}

void Helper::go() {
  for (;;) {
    uint32_t was = word_.load(std::memory_order_relaxed);
    if (was == kClaimed) {
      pause();
      continue;
    }
    // Release: the next thread that comes uses what is here, and a launcher
    // that sees kGone reads what the pieces wrote.
    if (word_.compare_exchange_weak(was, was == kReady ? kNobody : kGone,
                                    std::memory_order_release,
                                    std::memory_order_relaxed))
      return;
  }
}

bool Helper::help() {
  uint32_t was = word_.load(std::memory_order_relaxed);
  // Acquire: loop_, and what the launcher wrote before its offer.
  if (was != kOffered ||
      !word_.compare_exchange_strong(was, kTaken, std::memory_order_acquire,
                                     std::memory_order_relaxed))
    return false;
  loop_->work();
  leave();
  return true;
}

void Helper::sleep() {
  placement_.before_sleep();
  uint32_t was = kReady;
  // Release: the launcher that sees kAsleep uses the placement.
  if (word_.compare_exchange_strong(was, kAsleep, std::memory_order_release,
                                    std::memory_order_relaxed))
    do {
      futex_wait(&word_, kAsleep, 0);
      // Acquire: that launcher is done with it.
      was = word_.load(std::memory_order_acquire);
    } while (was == kAsleep || was == kClaimed);
  placement_.after_sleep();
}

// Called by the launcher while the helper uses its loop. The helper may have
// lost its core: a launcher that sleeps leaves its own to it. Woken on the
// helper's core, the launcher would share it from then on.
void Helper::sleep_until_left() {
  WakePlacement placement;
  placement.before_sleep();
  waiter_ = &placement;
  uint32_t was = kTaken;
  // Release: the helper that sees kAwaited uses the placement.
  if (word_.compare_exchange_strong(was, kAwaited, std::memory_order_release,
                                    std::memory_order_relaxed))
    // Acquire: the helper is done with it.
    while (word_.load(std::memory_order_acquire) == kAwaited)
      futex_wait(&word_, kAwaited, 0);
  placement.after_sleep();
}

void Helper::leave() {
  uint32_t was = kTaken;
  // Release: what the pieces wrote. Behind it the loop may be gone.
  // Acquire, where the launcher sleeps: its placement.
  if (word_.compare_exchange_strong(was, kLeft, std::memory_order_release,
                                    std::memory_order_acquire))
    return;
  waiter_->before_wake();
  word_.store(kLeft, std::memory_order_release);  // as above
  futex_wake_all(&word_);
}

}  // namespace npu
