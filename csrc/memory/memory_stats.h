// How much memory is in use: now, at most, and in total.
#pragma once

#include <array>
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
  void increase(int64_t amount) {
    current += amount;
    allocated += amount;
    if (current > peak) peak = current;
  }
  void decrease(int64_t amount) {
    current -= amount;
    freed += amount;
  }
  // Sets a sampled value: the totals count what changed between samples.
  void set(int64_t value) {
    if (value >= current) {
      increase(value - current);
    } else {
      decrease(current - value);
    }
  }
  void reset_peak() { peak = current; }
  void reset_accumulated() { allocated = freed = 0; }
};

// Guarded by the allocator's lock. allocated() and freed() are on the path of
// every allocation, so they keep only what cannot be derived.
class MemoryStats {
 public:
  // The memory that is free but cannot go back to the driver, because the rest
  // of its segment is in use. Neighbouring free blocks count as one.
  struct Split {
    int64_t blocks[2] = {}, bytes[2] = {};  // by PoolKind
  };

  // `mirror`: where other processes see a part of the statistics.
  explicit MemoryStats(DeviceBlock& mirror) : mirror_(mirror) {}

  void allocated(PoolKind kind, size_t size, size_t requested) {
    Usage& pool = pools_[int(kind)];
    pool.total.add(1, size, requested);
    pool.add(size, requested);
    if (all_.add(size, requested) && all_.top.bytes > all_.peak.bytes)
      mirror(mirror_.allocated_peak, all_.top.bytes);
    mirror(mirror_.allocated, all_.now.bytes);
    bump(mirror_.allocations);
  }
  void freed(PoolKind kind, size_t size, size_t requested) {
    pools_[int(kind)].now.add(-1, -int64_t(size), -int64_t(requested));
    all_.now.add(-1, -int64_t(size), -int64_t(requested));
    mirror(mirror_.allocated, all_.now.bytes);
  }

  // The block was freed by its owner, but counts as active.
  void pending(PoolKind kind, size_t size, size_t requested);
  void no_longer_pending(PoolKind kind, size_t size, size_t requested);

  void segment_added(PoolKind kind, size_t bytes);
  void segment_removed(PoolKind kind, size_t bytes);
  void sample(const Split& split);

  void retried();
  void out_of_memory();

  void reset_peak();
  void reset_accumulated();

  int64_t allocated_bytes() const { return all_.now.bytes; }
  int64_t peak_allocated_bytes() const;
  const Stat& reserved_bytes() const { return reserved_[2]; }

  // Under torch's keys.
  std::map<std::string, int64_t> flat() const;

  int64_t alloc_retries = 0, ooms = 0, sync_all_streams = 0;
  // Those of at least max_split_size.
  Stat oversize_allocations, oversize_segments;

 private:
  struct Amounts {
    int64_t count = 0, bytes = 0, requested = 0;
    void add(int64_t n, int64_t size, int64_t asked) {
      count += n;
      bytes += size;
      requested += asked;
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
    Amounts total;              // since the last reset; unused in all_
    Amounts base, active_base;  // what was there at that reset

    // True when there are more bytes than before.
    bool add(int64_t size, int64_t asked) {
      now.add(1, size, asked);
      if (now.count > top.count) top.count = now.count;
      if (now.requested > top.requested) top.requested = now.requested;
      if (now.bytes <= top.bytes) return false;
      top.bytes = now.bytes;
      return true;
    }
    void fold();
    Amounts active() const;
    void reset_peak();
    void reset_accumulated();
  };

  void mirror(Counter& counter, int64_t value) {
    // Relaxed: other processes read it, and it orders nothing.
    counter.store(uint64_t(value), std::memory_order_relaxed);
  }

  DeviceBlock& mirror_;
  Usage pools_[2];  // by PoolKind
  Usage all_;
  // Small, large, all.
  std::array<Stat, 3> segments_, reserved_, split_blocks_, split_bytes_;
  int64_t device_allocs_ = 0, device_frees_ = 0;
};

}  // namespace npu
