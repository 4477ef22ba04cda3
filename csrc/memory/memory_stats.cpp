#include "csrc/memory/memory_stats.h"

#include <algorithm>

#include "csrc/memory/settings.h"

namespace npu {
namespace {

constexpr int kAll = 2;
// In the order of PoolKind, then all.
constexpr const char* kPoolNames[] = {"small_pool", "large_pool", "all"};

void put(std::map<std::string, int64_t>& to, const std::string& key,
         const Stat& stat) {
  to[key + ".current"] = stat.current;
  to[key + ".peak"] = stat.peak;
  to[key + ".allocated"] = stat.allocated;
  to[key + ".freed"] = stat.freed;
}

// The statistic where `total` was added since a moment when `base` was in use.
Stat derive(int64_t now, int64_t peak, int64_t total, int64_t base) {
  return {now, peak, total, total + base - now};
}

}  // namespace

void MemoryStats::Amounts::raise(const Amounts& other) {
  count = std::max(count, other.count);
  bytes = std::max(bytes, other.bytes);
  requested = std::max(requested, other.requested);
}

void MemoryStats::Usage::fold() {
  peak.raise(top);
  active_peak.raise(top + pending);
  top = now;
}

MemoryStats::Amounts MemoryStats::Usage::active() const {
  return now + pending;
}

void MemoryStats::Usage::reset_peak() {
  top = peak = now;
  active_peak = active();
}

void MemoryStats::Usage::reset_accumulated() {
  total = {};
  base = now;
  active_base = active();
}

void MemoryStats::pending(PoolKind kind, size_t size, size_t requested) {
  for (Usage* usage : {&pools_[int(kind)], &all_}) {
    usage->fold();
    usage->pending.add(1, int64_t(size), int64_t(requested));
    usage->now.add(-1, -int64_t(size), -int64_t(requested));
    usage->top = usage->now;
  }
  mirror(mirror_.allocated, all_.now.bytes);
}

void MemoryStats::no_longer_pending(PoolKind kind, size_t size,
                                    size_t requested) {
  for (Usage* usage : {&pools_[int(kind)], &all_}) {
    usage->fold();
    usage->pending.add(-1, -int64_t(size), -int64_t(requested));
  }
}

void MemoryStats::segment_added(PoolKind kind, size_t bytes) {
  for (int pool : {int(kind), kAll}) {
    segments_[pool].increase(1);
    reserved_[pool].increase(int64_t(bytes));
  }
  ++device_allocs_;
  mirror(mirror_.reserved, reserved_[kAll].current);
}

void MemoryStats::segment_removed(PoolKind kind, size_t bytes) {
  for (int pool : {int(kind), kAll}) {
    segments_[pool].decrease(1);
    reserved_[pool].decrease(int64_t(bytes));
  }
  ++device_frees_;
  mirror(mirror_.reserved, reserved_[kAll].current);
}

void MemoryStats::sample(const Split& split) {
  for (int pool : {0, 1}) {
    split_blocks_[pool].set(split.blocks[pool]);
    split_bytes_[pool].set(split.bytes[pool]);
  }
  split_blocks_[kAll].set(split.blocks[0] + split.blocks[1]);
  split_bytes_[kAll].set(split.bytes[0] + split.bytes[1]);
}

void MemoryStats::retried() {
  ++alloc_retries;
  bump(mirror_.alloc_retries);
}

void MemoryStats::out_of_memory() {
  ++ooms;
  bump(mirror_.ooms);
}

void MemoryStats::reset_peak() {
  for (Usage* usage : {&pools_[0], &pools_[1], &all_}) usage->reset_peak();
  for (auto* stats : {&segments_, &reserved_, &split_blocks_, &split_bytes_})
    for (Stat& stat : *stats) stat.reset_peak();
  oversize_allocations.reset_peak();
  oversize_segments.reset_peak();
  mirror(mirror_.allocated_peak, all_.now.bytes);
}

void MemoryStats::reset_accumulated() {
  for (Usage* usage : {&pools_[0], &pools_[1], &all_})
    usage->reset_accumulated();
  for (auto* stats : {&segments_, &reserved_, &split_blocks_, &split_bytes_})
    for (Stat& stat : *stats) stat.reset_accumulated();
  oversize_allocations.reset_accumulated();
  oversize_segments.reset_accumulated();
  alloc_retries = ooms = sync_all_streams = 0;
  device_allocs_ = device_frees_ = 0;
}

int64_t MemoryStats::peak_allocated_bytes() const {
  return std::max(all_.peak.bytes, all_.top.bytes);
}

std::map<std::string, int64_t> MemoryStats::flat() const {
  std::map<std::string, int64_t> to;
  for (int pool = 0; pool < 3; ++pool) {
    Usage usage = pool == kAll ? all_ : pools_[pool];
    if (pool == kAll) usage.total = pools_[0].total + pools_[1].total;
    usage.fold();
    const Amounts active = usage.active();
    const Amounts& total = usage.total;
    const auto key = [pool](const char* name) {
      return std::string(name) + "." + kPoolNames[pool];
    };
    put(to, key("allocation"),
        derive(usage.now.count, usage.peak.count, total.count,
               usage.base.count));
    put(to, key("allocated_bytes"),
        derive(usage.now.bytes, usage.peak.bytes, total.bytes,
               usage.base.bytes));
    put(to, key("active"),
        derive(active.count, usage.active_peak.count, total.count,
               usage.active_base.count));
    put(to, key("active_bytes"),
        derive(active.bytes, usage.active_peak.bytes, total.bytes,
               usage.active_base.bytes));
    // As in torch, what was asked for counts while the block is active.
    put(to, key("requested_bytes"),
        derive(active.requested, usage.active_peak.requested, total.requested,
               usage.active_base.requested));
    put(to, key("segment"), segments_[pool]);
    put(to, key("reserved_bytes"), reserved_[pool]);
    put(to, key("inactive_split"), split_blocks_[pool]);
    put(to, key("inactive_split_bytes"), split_bytes_[pool]);
  }
  put(to, "oversize_allocations", oversize_allocations);
  put(to, "oversize_segments", oversize_segments);
  const size_t most = read_allocator_settings().max_split_size;
  to["max_split_size"] = most == SIZE_MAX ? -1 : int64_t(most);
  to["num_alloc_retries"] = alloc_retries;
  to["num_ooms"] = ooms;
  to["num_sync_all_streams"] = sync_all_streams;
  to["num_device_alloc"] = device_allocs_;
  to["num_device_free"] = device_frees_;
  return to;
}

}  // namespace npu
