#include "csrc/sanitizer/shadow.h"

#include <algorithm>
#include <iterator>
#include <tuple>

namespace npu {
namespace {

// The most accesses that one region keeps. The oldest are forgotten first: that
// can hide a race between tasks that far apart, but never invent one.
constexpr size_t kMostAccesses = 96;

using Accesses = std::vector<Access, Counted<Access>>;

void keep_inside(Accesses& accesses, uintptr_t lo, uintptr_t hi) {
  std::erase_if(accesses, [&](const Access& a) {
    return a.box.lo >= hi || a.box.hi <= lo;
  });
}

// Regions that are split and joined again have several copies of an access;
// without this each round would multiply them.
void keep_each_once(Accesses& accesses) {
  const auto key = [](const Access& a) {
    return std::tuple(a.number, a.stream, a.argument, a.box.lo, a.box.hi);
  };
  std::sort(accesses.begin(), accesses.end(),
            [&](const Access& a, const Access& b) { return key(a) < key(b); });
  const auto end = std::unique(
      accesses.begin(), accesses.end(),
      [&](const Access& a, const Access& b) { return key(a) == key(b); });
  accesses.erase(end, accesses.end());
  if (accesses.size() > kMostAccesses)
    accesses.erase(accesses.begin(), accesses.end() - kMostAccesses);
}

}  // namespace

std::atomic<int64_t> shadow_bytes{0};

void Region::add(const Access& access, const VectorClock& clock,
                 const VectorClock& host) {
  if (accesses.empty()) {
    stream = access.stream;
    one_stream = true;
  } else if (access.stream != stream) {
    one_stream = false;
  }
  // The accesses that stay keep their order: the oldest are at the front.
  std::erase_if(accesses, [&](const Access& old) {
    const bool ordered =
        old.stream == access.stream || clock[old.stream] >= old.number;
    // A later access that is unordered with the old one is unordered with this
    // one, too, so the old one has nothing to add.
    const bool replaced = ordered && (access.writes || !old.writes) &&
                          covers(access.box, old.box);
    return replaced || host[old.stream] >= old.number;
  });
  if (accesses.size() >= kMostAccesses)
    accesses.erase(accesses.begin(), accesses.begin() + kMostAccesses / 4);
  accesses.push_back(access);
}

Region* Shadow::find(uintptr_t address) {
  Region*& cached = slot(address);
  if (cached && cached->lo == address) [[likely]]
    return cached;
  auto at = regions_.upper_bound(address);
  if (at == regions_.begin()) return nullptr;
  Region& region = std::prev(at)->second;
  if (address >= region.hi) return nullptr;
  if (region.lo == address) cached = &region;
  return &region;
}

// The first region that ends above `lo`.
Shadow::Regions::iterator Shadow::first_in(uintptr_t lo) {
  auto at = regions_.upper_bound(lo);
  if (at != regions_.begin() && std::prev(at)->second.hi > lo) --at;
  return at;
}

void Shadow::erase(Regions::iterator at) {
  Region*& cached = slot(at->first);
  if (cached == &at->second) cached = nullptr;
  regions_.erase(at);
}

Region& Shadow::give_out(uintptr_t lo, size_t bytes) {
  const uintptr_t hi = lo + bytes;
  auto at = first_in(lo);
  if (at != regions_.end() && at->second.lo == lo && at->second.hi == hi)
      [[likely]] {
    Region& region = at->second;
    for (Access& access : region.accesses) access.stale = true;
    region.old_alloc_site = region.alloc_site;
    region.old_free_site = region.free_site;
    region.live = true;
    region.overwritten.reset();
    region.recorded.clear();
    return region;
  }
  Region fresh;
  fresh.lo = lo;
  fresh.hi = hi;
  for (; at != regions_.end() && at->second.lo < hi; at = first_in(lo)) {
    Region old = std::move(at->second);
    erase(at);
    for (Access& access : old.accesses) access.stale = true;
    for (const Access& access : old.accesses)
      if (access.box.lo < hi && access.box.hi > lo)
        fresh.accesses.push_back(access);
    fresh.old_alloc_site = old.alloc_site;
    fresh.old_free_site = old.free_site;
    if (old.lo < lo) {
      Region left = old;
      left.hi = lo;
      keep_inside(left.accesses, left.lo, left.hi);
      regions_.emplace(left.lo, std::move(left));
    }
    if (old.hi > hi) {
      old.lo = hi;
      keep_inside(old.accesses, old.lo, old.hi);
      regions_.emplace(hi, std::move(old));
    }
  }
  if (!fresh.accesses.empty()) {
    keep_each_once(fresh.accesses);
    fresh.stream = fresh.accesses[0].stream;
    fresh.one_stream =
        std::all_of(fresh.accesses.begin(), fresh.accesses.end(),
                    [&](const Access& a) { return a.stream == fresh.stream; });
  }
  return regions_.insert_or_assign(lo, std::move(fresh)).first->second;
}

void Shadow::clear() {
  regions_.clear();
  cache_.fill(nullptr);
}

void Shadow::forget(uintptr_t lo, size_t bytes) {
  auto at = first_in(lo);
  while (at != regions_.end() && at->second.lo < lo + bytes) {
    const auto next = std::next(at);
    erase(at);
    at = next;
  }
}

}  // namespace npu
