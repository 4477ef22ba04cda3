// A bounded queue of fixed slots: many producers, one consumer, no lock, no
// allocation after construction.
//
// Position p (0, 1, 2, ...) lives in slot p % capacity. A slot carries the lap
// of its newest published value: lap(p) = p / capacity + 1, of which 32 bits
// are enough: the slot that the consumer looks at says lap(p) or the one
// before. The consumer takes position p once its slot says lap(p). The consumer
// never writes a slot; it publishes `head`, the number of positions it has
// finished with, now and then, and producers keep a shared copy of it.
// Positions are 64-bit and never wrap.
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
#include "csrc/base/prefetch.h"
#include "csrc/stats/layout.h"  // RingControl
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
  using Control = RingControl<System::template Atomic>;

 public:
  // `capacity`: a power of two, at least 2; `slots`: that many, of lap 0.
  // `slots` and `control` outlive the ring. `first`: the first position; every
  // word of `control` then holds it, and the slots have the laps of the
  // positions before it.
  Ring(Slot* slots, uint64_t capacity, Control& control, uint64_t first = 0)
      : slots_(slots),
        mask_(capacity - 1),
        shift_(std::countr_zero(capacity)),
        control_(control),
        publish_mask_(capacity >= 8 ? capacity / 8 - 1 : 0),
        taken_(first) {}

  uint64_t capacity() const { return mask_ + 1; }

  // Reserves the next position, or returns kRingFull. The caller fills
  // slot(position) and must then publish() it. Any thread.
  [[gnu::always_inline]] uint64_t claim() {
    const bool alone = claimants_.enter();
    // Relaxed: a sole claimant wrote the tail itself, and for others the
    // exchange below decides; nothing is read through p.
    uint64_t p = control_.tail.load(std::memory_order_relaxed);
    for (;;) {
      // Acquire: pairs with the releases of known_head, so that this thread has
      // seen what find_room() saw with `head`.
      const uint64_t known =
          control_.known_head.load(std::memory_order_acquire);
      if (int64_t(p - known) >= int64_t(capacity())) [[unlikely]] {
        p = find_room(p);
        if (p != kRingFull) continue;
        if (alone) claimants_.leave();
        return kRingFull;
      }
      // Relaxed, both: a claim transfers no data; publish() does.
      if (alone) [[likely]] {
        control_.tail.store(p + 1, std::memory_order_relaxed);
        claimants_.leave();
        return p;
      }
      if (control_.tail.compare_exchange_weak(
              p, p + 1, std::memory_order_relaxed, std::memory_order_relaxed))
        return p;
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

  // Says that the positions below `head` are free, before the consumer has
  // announced it. The caller has synchronised with the consumer's last read of
  // them. Any thread.
  void freed(uint64_t head) {
    // Relaxed: moving it backwards only makes somebody look again.
    const uint64_t known = control_.known_head.load(std::memory_order_relaxed);
    // Release: passes on to other claimants what the caller has seen of the
    // consumer, as find_room() does.
    if (int64_t(head - known) > 0)
      control_.known_head.store(head, std::memory_order_release);
  }

  // The oldest published value, or null. Consumer only.
  Slot* front() {
    Slot& slot = slots_[taken_ & mask_];
    if (slot.lap.load(std::memory_order_acquire) != lap(taken_)) return nullptr;
    return &slot;
  }

  // The published value at a position from front_position() on, or null.
  // Consumer only.
  Slot* at(uint64_t position) {
    Slot& slot = slots_[position & mask_];
    // Acquire: as in front().
    if (slot.lap.load(std::memory_order_acquire) != lap(position))
      return nullptr;
    return &slot;
  }

  // Position of the value that front() returns. Consumer only.
  uint64_t front_position() const { return taken_; }

  // Gives the front slot back, to be announced with the next batch. Consumer
  // only; the value must not be touched afterwards.
  void pop() {
    ++taken_;
    if ((taken_ & publish_mask_) == 0) flush();
  }

  // Announces every popped slot to the producers. Consumer only; call before
  // waiting for anything, or a full ring may stay full.
  void flush() {
    // Release: pairs with the acquire of head in find_room().
    control_.head.store(taken_, std::memory_order_release);
  }

 private:
  // The position to try next where p is too far ahead of the known head: p, if
  // the consumer has moved on; the tail, if p is stale; else kRingFull.
  [[gnu::noinline]] uint64_t find_room(uint64_t p) {
    // Acquire: the consumer's reads of the slot's old value happen before its
    // release of head, hence before our writes. The shared copy passes that on
    // (release below), so that a producer which only sees the copy is ordered
    // too.
    const uint64_t head = control_.head.load(std::memory_order_acquire);
    if (int64_t(p - head) < int64_t(capacity())) {
      // May move the copy backwards when two producers race: a smaller head
      // only makes somebody look again.
      control_.known_head.store(head, std::memory_order_release);
      return p;
    }
    const uint64_t tail = control_.tail.load(std::memory_order_relaxed);
    return tail == p ? kRingFull : tail;
  }

  uint32_t lap(uint64_t position) const {
    return uint32_t((position >> shift_) + 1);
  }

  Slot* const slots_;
  const uint64_t mask_;
  const int shift_;
  Control& control_;
  const uint64_t publish_mask_;
  // The producers' own line.
  alignas(kCacheLine) SoleUser<System> claimants_;
  // The consumer's own line.
  alignas(kCacheLine) uint64_t taken_;
};

}  // namespace npu
