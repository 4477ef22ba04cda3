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

// Regions that are split and joined again have several copies of an access;
// without this each round would multiply them.
void keep_each_once(Accesses& accesses) {
  const auto key = [](const Access& a) {
    return std::tuple(a.number, a.stream, a.argument, a.box.lo, a.box.hi);
  };
  std::ranges::sort(accesses, {}, key);
  const auto copies = std::ranges::unique(accesses, {}, key);
  accesses.erase(copies.begin(), copies.end());
  if (accesses.size() > kMostAccesses)
    accesses.erase(accesses.begin(), accesses.end() - kMostAccesses);
}

}  // namespace

std::atomic<int64_t> shadow_bytes{0};

void Region::add(const Access& access, const VectorClock& clock,
                 const VectorClock& host) {
  // A later access that is unordered with `old` is unordered with the new one,
  // too, so that `old` has nothing to add.
  const auto replaces = [&](const Access& old) {
    return (access.writes || !old.writes) && covers(access.box, old.box);
  };
  if (accesses.size() == 1 && accesses[0].stream == access.stream &&
      replaces(accesses[0])) [[likely]] {
    accesses[0] = access;
    stream = access.stream;
    one_stream = true;
    return;
  }
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
    return (ordered && replaces(old)) || host[old.stream] >= old.number;
  });
  if (accesses.size() >= kMostAccesses)
    accesses.erase(accesses.begin(), accesses.begin() + kMostAccesses / 4);
  accesses.push_back(access);
}

void Region::note_streams() {
  if (accesses.empty()) return;
  stream = accesses[0].stream;
  one_stream = std::all_of(accesses.begin(), accesses.end(),
                           [&](const Access& a) { return a.stream == stream; });
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

void Shadow::cut(uintptr_t address) {
  const auto at = first_in(address);
  if (at == regions_.end() || at->second.lo >= address) return;
  Region& left = at->second;
  Region& right = regions_.emplace_hint(std::next(at), address, left)->second;
  right.lo = left.hi = address;
  std::erase_if(left.accesses,
                [&](const Access& a) { return a.box.lo >= address; });
  std::erase_if(right.accesses,
                [&](const Access& a) { return a.box.hi <= address; });
  left.note_streams();
  right.note_streams();
}

Region& Shadow::make_one(uintptr_t lo, uintptr_t hi) {
  cut(lo);
  cut(hi);
  const auto at = regions_.try_emplace(lo).first;
  Region& region = at->second;
  region.lo = lo;
  region.hi = hi;
  auto next = std::next(at);
  if (next == regions_.end() || next->first >= hi) return region;
  do {
    Region& old = next->second;
    region.accesses.insert(region.accesses.end(), old.accesses.begin(),
                           old.accesses.end());
    region.alloc_site = old.alloc_site;
    region.free_site = old.free_site;
    const auto joined = next++;
    erase(joined);
  } while (next != regions_.end() && next->first < hi);
  keep_each_once(region.accesses);
  region.note_streams();
  return region;
}

Region& Shadow::give_out(uintptr_t lo, size_t bytes) {
  Region* const known = find(lo);
  Region& region = known && known->lo == lo && known->hi == lo + bytes
                       ? *known
                       : make_one(lo, lo + bytes);
  for (Access& access : region.accesses) access.stale = true;
  region.live = true;
  region.pinned = region.escaped = false;
  region.captured = 0;
  region.overwritten.reset();
  region.owner = 0;
  region.old_alloc_site = region.alloc_site;
  region.old_free_site = region.free_site;
  region.alloc_site = region.free_site = 0;
  region.recorded.clear();
  return region;
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
