// A bounded queue of fixed slots: many producers, one consumer, no lock, no
// allocation after construction.
//
// Position p (0, 1, 2, ...) lives in slot p % capacity. A slot carries the lap
// of its newest published value: lap(p) = p / capacity + 1, of which 32 bits
// are enough: the slot that the consumer looks at says lap(p) or the one
// before. The consumer takes position p once its slot says lap(p). The consumer
// never writes a slot; it advances `retired`, the number of positions it has
// finished with, and producers keep a shared copy of it, which they renew when
// it leaves them no room. Positions are 64-bit and never wrap.
//
// A producer preempted between claim() and publish() holds up the consumer,
// in this as in any queue that keeps order; so nothing that can fail or wait
// may happen between the two. As long as one thread alone has claimed, it does
// so without a locked instruction (sole_user.h).
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "csrc/base/align.h"
#include "csrc/taskqueue/sequence.h"
#include "csrc/taskqueue/sole_user.h"
#include "csrc/taskqueue/system.h"

namespace npu {

inline constexpr uint64_t kRingFull = ~uint64_t{0};

// `Slot` has a member `lap`, an atomic uint32_t, which belongs to the ring and
// is 0 at first. Everything else in it belongs to the user.
template <typename Slot, typename System = npu::System>
class Ring {
  template <typename T>
  using Atomic = typename System::template Atomic<T>;

 public:
  // `capacity`: a power of two, at least 2; `slots`: that many, of lap 0.
  // `shown`: a copy of tail() for readers that the ring must not depend on.
  // Both outlive the ring. `first`: the first position; the slots then have the
  // laps of the positions before it.
  Ring(Slot* slots, uint64_t capacity, Atomic<uint64_t>& shown,
       uint64_t first = 0)
      : slots_(slots),
        mask_(capacity - 1),
        shift_(std::countr_zero(capacity)),
        shown_(shown),
        tail_(first),
        known_(first),
        taken_(first),
        retired_(first) {}

  uint64_t capacity() const { return mask_ + 1; }

  // Positions claimed. Relaxed: program order is enough for the thread's own,
  // and another thread's are only covered if something else ordered them
  // before.
  uint64_t tail() const { return tail_.load(std::memory_order_relaxed); }

  // Positions that the consumer has finished with.
  BasicSequence<System>& retired() { return retired_; }
  const BasicSequence<System>& retired() const { return retired_; }

  // Reserves the next position, or returns kRingFull. The caller fills
  // slot(position) and must then publish() it. Any thread.
  [[gnu::always_inline]] uint64_t claim() {
    const bool alone = claimants_.enter();
    // Relaxed: a sole claimant wrote the tail itself, and for others the
    // exchange below decides; nothing is read through p.
    uint64_t p = tail();
    for (;;) {
      // Acquire: pairs with the release in find_room(), so that this thread has
      // seen what that one saw with `retired`.
      const uint64_t known = known_.load(std::memory_order_acquire);
      if (int64_t(p - known) >= int64_t(capacity())) [[unlikely]] {
        p = find_room(p);
        if (p != kRingFull) continue;
        if (alone) claimants_.leave();
        return kRingFull;
      }
      // Relaxed, both: a claim transfers no data; publish() does.
      if (alone) [[likely]] {
        tail_.store(p + 1, std::memory_order_relaxed);
        shown_.store(p + 1, std::memory_order_relaxed);
        claimants_.leave();
        return p;
      }
      if (tail_.compare_exchange_weak(p, p + 1, std::memory_order_relaxed,
                                      std::memory_order_relaxed)) {
        show(p + 1);
        return p;
      }
    }
  }

  // The slot of a claimed position. It belongs to the claimant until publish().
  Slot& slot(uint64_t position) { return slots_[position & mask_]; }

  // Memory order: writes to slot(position) before publish() are visible to
  // the consumer once front() returns that value (release here, acquire there).
  void publish(uint64_t position) {
    slots_[position & mask_].lap.store(lap(position),
                                       std::memory_order_release);
  }

  // Fetches the line that the next claimant writes first. The consumer's core
  // has had it since the lap before. If the producer took it back only when it
  // writes, its next locked instruction would wait for it. The fetch pays off
  // where the consumer does not look at that slot in between.
  void fetch_after(uint64_t position) {
    prefetch_for_write(&slots_[(position + 1) & mask_]);
  }

  // The oldest published value, or null. Consumer only.
  Slot* front() { return at(taken_); }

  // The published value at a position from front_position() on, or null.
  // Consumer only.
  Slot* at(uint64_t position) {
    Slot& slot = slots_[position & mask_];
    // Acquire: pairs with the release in publish().
    if (slot.lap.load(std::memory_order_acquire) != lap(position))
      return nullptr;
    return &slot;
  }

  // Position of the value that front() returns. Consumer only.
  uint64_t front_position() const { return taken_; }

  // Gives the front slot back; the value must not be touched afterwards.
  // Consumer only. Returns whether somebody waited for that: advance_to().
  bool retire() { return retired_.advance_to(++taken_); }

  // A position that needs no slot, because its one user has done at once what
  // it stands for. Not for a ring that has other users. Returns like retire().
  bool pass() {
    tail_.store(taken_ + 1, std::memory_order_relaxed);
    shown_.store(taken_ + 1, std::memory_order_relaxed);
    return retire();
  }

 private:
  // The position to try next where p is too far ahead of what is known to be
  // retired: p, if the consumer has moved on; the tail, if p is stale; else
  // kRingFull.
  [[gnu::noinline]] uint64_t find_room(uint64_t p) {
    // Acquire, in value(): the consumer's reads of the slot's old value happen
    // before its release in advance_to(), hence before our writes. The shared
    // copy passes that on (release below), so that a producer which only sees
    // the copy is ordered too.
    const uint64_t retired = retired_.value();
    if (int64_t(p - retired) < int64_t(capacity())) {
      // May move the copy backwards when two producers race: a smaller number
      // only makes somebody look again.
      known_.store(retired, std::memory_order_release);
      return p;
    }
    const uint64_t now = tail();
    return now == p ? kRingFull : now;
  }

  // Relaxed: nobody reads anything through the copy. It does not move
  // backwards: readers would miss the last task.
  [[gnu::noinline]] void show(uint64_t tail) {
    uint64_t shown = shown_.load(std::memory_order_relaxed);
    while (shown < tail &&
           !shown_.compare_exchange_weak(shown, tail, std::memory_order_relaxed,
                                         std::memory_order_relaxed)) {
    }
  }

  uint32_t lap(uint64_t position) const {
    return uint32_t((position >> shift_) + 1);
  }

  Slot* const slots_;
  const uint64_t mask_;
  const int shift_;
  Atomic<uint64_t>& shown_;
  // The producers' own line.
  alignas(kCacheLine) SoleUser<System> claimants_;
  Atomic<uint64_t> tail_;
  Atomic<uint64_t> known_;  // their copy of `retired`
  // The consumer's own line.
  alignas(kCacheLine) uint64_t taken_;
  BasicSequence<System> retired_;
};

}  // namespace npu
