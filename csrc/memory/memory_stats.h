// How much memory is in use: now, at most, and in total.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "csrc/memory/pool.h"
#include "csrc/stats/layout.h"

namespace npu {

// One statistic: now, the most so far, and the two running totals.
struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
  // A negative amount counts as freed.
  void add(int64_t amount) {
    current += amount;
    if (amount > 0) allocated += amount;
    if (amount < 0) freed -= amount;
    if (current > peak) peak = current;
  }
};

// Guarded by the allocator's lock. allocated() and freed() are on the path of
// every allocation, so they keep only what cannot be derived.
class MemoryStats {
 public:
  // After those of each PoolKind.
  static constexpr int kAll = 2, kPools = 3;
  // Statistics that change seldom are kept as they are reported.
  enum Kept {
    kSegments,
    kReserved,
    // What is free but cannot go back to the driver, because the rest of its
    // segment is in use. Neighbouring free blocks count as one.
    kSplitBlocks,
    kSplitBytes,
    // At least as large as max_split_size; of all pools together only.
    kOversizeBlocks,
    kOversizeSegments,
    kKept
  };
  enum Event { kRetries, kOoms, kSyncs, kDeviceAllocs, kDeviceFrees, kEvents };

  // `mirror`: where other processes see a part of the statistics.
  explicit MemoryStats(DeviceBlock& mirror) : mirror_(mirror) {}

  void allocated(const Block& block) {
    const Amounts one = Amounts::of(block);
    Usage& pool = usages_[int(block.pool->kind())];
    Usage& all = usages_[kAll];
    pool.total += one;
    pool.add(one);
    if (all.add(one) && all.top.bytes > all.peak.bytes)
      mirror(mirror_.allocated_peak, all.top.bytes);
    mirror(mirror_.allocated, all.now.bytes);
    bump(mirror_.allocations);
  }
  void freed(const Block& block) {
    const Amounts one = Amounts::of(block);
    usages_[int(block.pool->kind())].now -= one;
    usages_[kAll].now -= one;
    mirror(mirror_.allocated, usages_[kAll].now.bytes);
  }
  // The block was freed by its owner, but counts as active.
  void pending(const Block& block);
  void no_longer_pending(const Block& block);

  // Negative: given back to the driver.
  void segment(PoolKind kind, int64_t bytes);
  // Notes what is true now of statistics that are looked at from time to time.
  void sample(Kept which, int pool, int64_t value) {
    Stat& stat = kept_[which][pool];
    stat.add(value - stat.current);
  }
  void oversize_block(int64_t change) {
    kept_[kOversizeBlocks][kAll].add(change);
  }
  void count(Event event);

  void reset_peak();
  void reset_accumulated();

  int64_t allocated_bytes() const { return usages_[kAll].now.bytes; }
  int64_t peak_allocated_bytes() const;
  const Stat& reserved_bytes() const { return kept_[kReserved][kAll]; }

  // Under torch's keys.
  std::map<std::string, int64_t> flat() const;

 private:
  struct Amounts {
    int64_t count = 0, bytes = 0, requested = 0;
    static Amounts of(const Block& block) {
      return {1, int64_t(block.size), int64_t(block.requested)};
    }
    void operator+=(const Amounts& other) {
      count += other.count;
      bytes += other.bytes;
      requested += other.requested;
    }
    void operator-=(const Amounts& other) {
      count -= other.count;
      bytes -= other.bytes;
      requested -= other.requested;
    }
    void raise(const Amounts& other);
    Amounts operator+(const Amounts& other) const {
      return {count + other.count, bytes + other.bytes,
              requested + other.requested};
    }
  };

  // Peaks are taken in two steps. While `pending` stays the same, the most
  // memory active is the most allocated, `top`, plus pending; fold() moves
  // that into the peaks whenever pending is about to change.
  struct Usage {
    Amounts now, top, pending;
    Amounts peak, active_peak;
    Amounts total;              // since the last reset; unused of all pools
    Amounts base, active_base;  // what was there at that reset

    // True when there are more bytes than before.
    bool add(const Amounts& one) {
      now += one;
      if (now.count > top.count) top.count = now.count;
      if (now.requested > top.requested) top.requested = now.requested;
      if (now.bytes <= top.bytes) return false;
      top.bytes = now.bytes;
      return true;
    }
    void fold();
  };
  // A statistic that is derived from a Usage.
  struct Derived {
    const char* name;
    int64_t Amounts::*amount;
    bool active;  // counts what is pending, too
  };
  static const Derived kDerived[];

  void mirror(Counter& counter, int64_t value) {
    // Relaxed: other processes read it, and it orders nothing.
    counter.store(uint64_t(value), std::memory_order_relaxed);
  }

  DeviceBlock& mirror_;
  Usage usages_[kPools];
  Stat kept_[kKept][kPools];
  int64_t events_[kEvents] = {};
};

}  // namespace npu
