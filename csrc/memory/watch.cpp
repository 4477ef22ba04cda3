#include "csrc/memory/watch.h"

#include <map>
#include <mutex>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/call_site.h"

namespace npu {
namespace {

struct Watches {
  std::mutex mutex;  // guards the map, and what is written to the watches
  std::multimap<uintptr_t, MemoryWatch*> by_address;
};

// Outside of Watches, whose first use allocates: it is read between the claim
// and the commit of a replay's task, where nothing may fail. Relaxed: the
// program orders frees and who asks for the number.
std::atomic<uint64_t> ends_{0};

// Never destroyed: tensors may be freed after static destruction.
Watches& watches() {
  static auto* const instance = new Watches;
  return *instance;
}

using At = std::multimap<uintptr_t, MemoryWatch*>::iterator;

// The caller holds the mutex.
At stop(At at) {
  at->second->watching = false;
  detail::memory_watches.fetch_sub(1, std::memory_order_relaxed);
  return watches().by_address.erase(at);
}

// The caller holds the mutex, if the watch has begun.
void note_end(MemoryWatch& watch, uint32_t site) {
  const uint64_t number = ends_.fetch_add(1, std::memory_order_relaxed) + 1;
  watch.ended_at = site;
  watch.ended.store(number, std::memory_order_release);
  uint64_t none = 0;
  watch.first_ended->compare_exchange_strong(
      none, number, std::memory_order_release, std::memory_order_relaxed);
}

}  // namespace

bool watch_memory(const void* address, uint64_t own_pool, MemoryWatch& watch) {
  // Nobody frees the memory meanwhile: the caller has a tensor there.
  for (int device = 0; device < device_count(); ++device) {
    if (!allocator_exists(device)) continue;
    const auto found = allocator(device).report_free(address);
    if (!found.ours) continue;
    if (found.graph_pool && found.graph_pool == own_pool) return false;
    watch.graph_pool = found.graph_pool;
    if (found.in_use || found.graph_pool) break;
    std::lock_guard lock(watches().mutex);
    note_end(watch, 0);
    return true;
  }
  std::lock_guard lock(watches().mutex);
  watch.address = reinterpret_cast<uintptr_t>(address);
  watches().by_address.emplace(watch.address, &watch);
  watch.watching = true;
  detail::memory_watches.fetch_add(1, std::memory_order_relaxed);
  return true;
}

void unwatch_memory(MemoryWatch& watch) {
  std::lock_guard lock(watches().mutex);
  if (!watch.watching) return;
  auto at = watches().by_address.lower_bound(watch.address);
  while (at->second != &watch) ++at;
  stop(at);
}

uint64_t memory_ends_noted() { return ends_.load(std::memory_order_relaxed); }

namespace detail {

void end_watches(const void* memory, size_t bytes, uint64_t graph_pool) {
  if (in_bad_fork()) return;  // the mutex may be locked for ever
  const auto lo = reinterpret_cast<uintptr_t>(memory);
  auto& all = watches().by_address;
  {
    std::lock_guard lock(watches().mutex);
    const auto first = all.lower_bound(lo);
    if (first == all.end() || first->first - lo >= bytes) return;
  }
  // To know the line that frees may take the interpreter's lock.
  const uint32_t site = call_stack_id();
  std::lock_guard lock(watches().mutex);
  for (auto at = all.lower_bound(lo);
       at != all.end() && at->first - lo < bytes;) {
    MemoryWatch& watch = *at->second;
    // The graphs of a pool leave each other results in what is free there.
    if (graph_pool && watch.graph_pool == graph_pool) {
      watch.back_in_pool = true;
      ++at;
      continue;
    }
    note_end(watch, site);
    at = stop(at);
  }
}

}  // namespace detail

void graph_pool_freed(uint64_t graph_pool) {
  if (in_bad_fork()) return;
  std::lock_guard lock(watches().mutex);
  auto& all = watches().by_address;
  for (auto at = all.begin(); at != all.end();) {
    MemoryWatch& watch = *at->second;
    if (watch.graph_pool != graph_pool || !watch.back_in_pool) {
      ++at;
      continue;
    }
    note_end(watch, 0);
    at = stop(at);
  }
}

}  // namespace npu
