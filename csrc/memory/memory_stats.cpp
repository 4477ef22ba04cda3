#include "csrc/memory/memory_stats.h"

#include <algorithm>
#include <iterator>

#include "csrc/memory/settings.h"

namespace npu {
namespace {

constexpr const char* kPoolNames[] = {"small_pool", "large_pool", "all"};
constexpr const char* kKeptNames[] = {"segment",
                                      "reserved_bytes",
                                      "inactive_split",
                                      "inactive_split_bytes",
                                      "oversize_allocations",
                                      "oversize_segments"};
constexpr const char* kEventNames[] = {"num_alloc_retries", "num_ooms",
                                       "num_sync_all_streams",
                                       "num_device_alloc", "num_device_free"};

void put(std::map<std::string, int64_t>& to, const std::string& key,
         const Stat& stat) {
  to[key + ".current"] = stat.current;
  to[key + ".peak"] = stat.peak;
  to[key + ".allocated"] = stat.allocated;
  to[key + ".freed"] = stat.freed;
}

}  // namespace

// As in torch, what was asked for counts while the block is active.
constexpr MemoryStats::Derived MemoryStats::kDerived[] = {
    {"allocation", &Amounts::count, false},
    {"allocated_bytes", &Amounts::bytes, false},
    {"active", &Amounts::count, true},
    {"active_bytes", &Amounts::bytes, true},
    {"requested_bytes", &Amounts::requested, true}};

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

void MemoryStats::pending(const Block& block) {
  for (int pool : {int(block.pool->kind()), kAll}) {
    Usage& usage = usages_[pool];
    usage.fold();
    usage.pending += Amounts::of(block);
    usage.now -= Amounts::of(block);
    usage.top = usage.now;
  }
  mirror(mirror_.allocated, allocated_bytes());
}

void MemoryStats::no_longer_pending(const Block& block) {
  for (int pool : {int(block.pool->kind()), kAll}) {
    usages_[pool].fold();
    usages_[pool].pending -= Amounts::of(block);
  }
}

void MemoryStats::segment(PoolKind kind, int64_t bytes) {
  const int64_t one = bytes < 0 ? -1 : 1;
  for (int pool : {int(kind), kAll}) {
    kept_[kSegments][pool].add(one);
    kept_[kReserved][pool].add(bytes);
  }
  if (uint64_t(one * bytes) >= allocator_settings().max_split_size)
    kept_[kOversizeSegments][kAll].add(one);
  count(bytes < 0 ? kDeviceFrees : kDeviceAllocs);
  mirror(mirror_.reserved, reserved_bytes().current);
}

void MemoryStats::count(Event event) {
  ++events_[event];
  if (event == kRetries) bump(mirror_.alloc_retries);
  if (event == kOoms) bump(mirror_.ooms);
}

void MemoryStats::reset_peak() {
  for (Usage& usage : usages_) {
    usage.top = usage.peak = usage.now;
    usage.active_peak = usage.now + usage.pending;
  }
  for (auto& pools : kept_)
    for (Stat& stat : pools) stat.peak = stat.current;
  mirror(mirror_.allocated_peak, allocated_bytes());
}

void MemoryStats::reset_accumulated() {
  for (Usage& usage : usages_) {
    usage.total = {};
    usage.base = usage.now;
    usage.active_base = usage.now + usage.pending;
  }
  for (auto& pools : kept_)
    for (Stat& stat : pools) stat.allocated = stat.freed = 0;
  std::ranges::fill(events_, 0);
}

int64_t MemoryStats::peak_allocated_bytes() const {
  return std::max(usages_[kAll].peak.bytes, usages_[kAll].top.bytes);
}

std::map<std::string, int64_t> MemoryStats::flat() const {
  std::map<std::string, int64_t> to;
  for (int pool = 0; pool < kPools; ++pool) {
    const std::string of = std::string(".") + kPoolNames[pool];
    Usage usage = usages_[pool];
    if (pool == kAll) usage.total = usages_[0].total + usages_[1].total;
    usage.fold();
    for (const auto& [name, amount, active] : kDerived) {
      const Amounts& base = active ? usage.active_base : usage.base;
      const int64_t now =
          usage.now.*amount + (active ? usage.pending.*amount : 0);
      const int64_t total = usage.total.*amount;
      put(to, name + of,
          {now, (active ? usage.active_peak : usage.peak).*amount, total,
           total + base.*amount - now});
    }
    for (int kept = 0; kept < kOversizeBlocks; ++kept)
      put(to, kKeptNames[kept] + of, kept_[kept][pool]);
  }
  for (int kept = kOversizeBlocks; kept < kKept; ++kept)
    put(to, kKeptNames[kept], kept_[kept][kAll]);
  for (int event = 0; event < kEvents; ++event)
    to[kEventNames[event]] = events_[event];
  const size_t most = allocator_settings().max_split_size;
  to["max_split_size"] = most == SIZE_MAX ? -1 : int64_t(most);
  return to;
}

}  // namespace npu
