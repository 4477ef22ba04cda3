// The sanitizer's part that is about the host: what it waits for, and what it
// does with its own memory.
#include <algorithm>
#include <utility>

#include "csrc/sanitizer/sanitizer.h"

namespace npu {
namespace {

// What a report calls the host's write of memory that has escaped.
constexpr const char* kEscaped = "an array or pointer taken here";

// Whether an access may touch bytes of this one.
auto meeting(const Access& one) {
  return [&one](const Access& other) {
    return overlap(one.box, other.box) != Answer::kNo;
  };
}

}  // namespace

void Sanitizer::published(Stream&, bool refused) {
  if (refused || owes_error_) raise_found();
}

bool Sanitizer::host_waited(Stream& stream, uint64_t number) {
  std::unique_lock lock(mutex_);
  host_joins(index_of(stream), number);
  return compare_known(std::move(lock));
}

void Sanitizer::raise_found() {
  owes_error_ = false;
  if (hooks_.raise) hooks_.raise();
}

void Sanitizer::host_escaped(const void* memory) {
  const uint32_t site = call_stack_id();
  std::lock_guard lock(mutex_);
  Region* const region = shadow_.find(uintptr_t(memory));
  if (!region || !region->pinned || region->escaped) return;
  region->escaped = true;
  region->escape_site = site;
  for (const Access& access : region->accesses)
    if (!access.writes && host_[access.stream] < access.number)
      note_source(*region, access);
}

void Sanitizer::note_source(const Region& region, const Access& read) {
  const auto changes = [&, meets = meeting(read)](const Access& a) {
    return a.writes && host_[a.stream] < a.number && meets(a);
  };
  if (!read.box.solid() || std::ranges::any_of(region.accesses, changes))
    return;
  for (size_t i = 0; i < streams_.size(); ++i)
    if (host_[i] < unseen_[i]) return;
  sources_.note(read);
}

void Sanitizer::compare_sources(const Access& access, bool over,
                                std::vector<Finding>& findings) {
  sources_.compare(over, meeting(access),
                   [&](const Access& read) { note_changed(read, findings); });
}

void Sanitizer::note_changed(const Access& read,
                             std::vector<Finding>& findings) {
  const Region& region = *shadow_.find(read.box.lo);
  Finding f = describe(FindingKind::kHostWrite, region);
  f.first = side(read);
  f.second = {.op = kEscaped,
              .device = -1,
              .stream = -1,
              .task = 0,
              .site = {region.escape_site, 0},
              .argument = 0,
              .reads = false,
              .writes = true,
              .lo = read.box.lo,
              .hi = read.box.hi};
  findings.push_back(f);
}

bool Sanitizer::compare_known(std::unique_lock<std::mutex> lock) {
  if (sources_.empty()) [[likely]]
    return false;
  std::vector<Finding> findings;
  sources_.compare(
      true, [&](const Access& a) { return host_[a.stream] >= a.number; },
      [&](const Access& read) { note_changed(read, findings); });
  counts_.findings += findings.size();
  lock.unlock();
  if (!findings.empty() && hooks_.found &&
      hooks_.found(findings.data(), findings.size()))
    owes_error_ = true;
  return owes_error_;
}

void Sanitizer::note_unseen(Stream& stream, uint64_t number) {
  std::lock_guard lock(mutex_);
  unseen_.raise(index_of(stream), number);
  sources_.clear();
}

void Sanitizer::check_host(const npu_kernel& op, const uint64_t* words,
                           bool only_pinned) {
  std::vector<Finding> findings;
  {
    std::lock_guard lock(mutex_);
    for (uint32_t i = 0; i < op.n_views; ++i) {
      Region* region = shadow_.find(uintptr_t(words[op.views[i].word]));
      if (!region || !region->live || (only_pinned && !region->pinned))
        continue;
      const Access access = access_of(op, i, words, kHost, 1, {}, false);
      if (access.box.empty()) continue;
      check(access, *region, host_, findings);
      if (region->escaped && access.writes)
        compare_sources(access, true, findings);
      if (region->overwritten)
        check_overwritten(access, *region, {Origin::kOperator}, findings);
    }
    counts_.findings += findings.size();
  }
  if (findings.empty()) [[likely]]
    return;
  const CallSite site = call_site();
  for (Finding& f : findings)
    if (f.second.op != kEscaped) f.second.site = site;
  if (hooks_.found && hooks_.found(findings.data(), findings.size()))
    raise_found();
}

void Sanitizer::host_uses(Stream&, const npu_kernel& op,
                          const uint64_t* words) {
  check_host(op, words, false);
}

void Sanitizer::host_touches(const npu_kernel& op, const uint64_t* words) {
  check_host(op, words, true);
}

bool Sanitizer::pinned_pending() {
  std::lock_guard lock(mutex_);
  std::erase_if(pinned_, [&](uintptr_t address) {
    const Region* region = shadow_.find(address);
    return !region || !region->pinned || !pending(*region);
  });
  return !pinned_.empty();
}

bool Sanitizer::pending(const Region& region) const {
  return std::any_of(
      region.accesses.begin(), region.accesses.end(),
      [&](const Access& a) { return host_[a.stream] < a.number; });
}

bool Sanitizer::host_lent(const void* memory, size_t bytes) {
  std::lock_guard lock(mutex_);
  const Region* known = shadow_.find(uintptr_t(memory));
  if (known && known->live && known->pinned) return false;
  forget_host(memory, bytes);
  Region& region = shadow_.give_out(uintptr_t(memory), bytes);
  region.pinned = true;
  region.owner = kHost;
  return true;
}

bool Sanitizer::host_pending(const void* memory) {
  std::lock_guard lock(mutex_);
  const Region* region = shadow_.find(uintptr_t(memory));
  return region && pending(*region);
}

void Sanitizer::host_allocated(const void* memory, size_t bytes) {
  const uint32_t site = call_stack_id();
  std::lock_guard lock(mutex_);
  forget_host(memory, bytes);
  Region& region = shadow_.give_out(uintptr_t(memory), bytes);
  region.pinned = true;
  region.owner = kHost;
  region.alloc_site = site;
}

void Sanitizer::host_freed(const void* memory) {
  std::lock_guard lock(mutex_);
  if (Region* region = shadow_.find(uintptr_t(memory)))
    forget_host(reinterpret_cast<void*>(region->lo), region->hi - region->lo);
}

void Sanitizer::forget_host(const void* memory, size_t bytes) {
  sources_.forget(uintptr_t(memory), bytes);
  shadow_.forget(uintptr_t(memory), bytes);
}

}  // namespace npu
