#include "csrc/stats/collective_totals.h"

#include <string.h>

#include <algorithm>
#include <mutex>

namespace npu {
namespace {

bool is_of(const CollectiveTotals& entry, int group, const char* name) {
  // Relaxed: written before `known`, which the caller has seen.
  return entry.group.load(std::memory_order_relaxed) == uint64_t(group) &&
         !strncmp(entry.name, name, sizeof entry.name - 1);
}

}  // namespace

CollectiveTotals* totals_of(CollectiveTotals* totals, int group,
                            const char* name) {
  static std::mutex mutex;  // held by whoever makes an entry
  std::unique_lock lock(mutex, std::defer_lock);
  for (int i = 0; i < kCollectiveTotals; ++i) {
    CollectiveTotals& entry = totals[i];
    // Acquire: whoever sees `known` sees the group and the name.
    if (!entry.known.load(std::memory_order_acquire)) {
      if (!lock.owns_lock()) lock.lock();
      // Relaxed: written under the mutex.
      if (!entry.known.load(std::memory_order_relaxed)) {
        entry.group.store(uint64_t(group), std::memory_order_relaxed);
        strncpy(entry.name, name, sizeof entry.name - 1);
        // Release: pairs with the acquire above, and with readers.
        entry.known.store(1, std::memory_order_release);
        return &entry;
      }
    }
    if (is_of(entry, group, name)) return &entry;
  }
  return nullptr;
}

void add_call(CollectiveTotals& to, uint64_t bytes, const CallCost& cost) {
  // Relaxed throughout: statistics order nothing.
  const auto add = [](Counter& sum, uint64_t ns) {
    sum.fetch_add(ns, std::memory_order_relaxed);
  };
  add(to.bytes, bytes);
  add(to.queued_ns, cost.queued_ns);
  add(to.waited_ns, cost.waited_ns);
  add(to.exposed_ns, cost.exposed_ns);
  add(to.host_wait_ns, cost.host_wait_ns);
  to.run_ns.add_shared(cost.run_ns);
}

void note_place(HostPlace& place, const char* line, bool in_loader,
                uint64_t ooms, uint64_t now) {
  uint64_t words[kPlaceWords] = {};
  strncpy(reinterpret_cast<char*>(words), line, sizeof words - 1);
  // Relaxed where nothing is said: `changes` orders the words.
  bool same = place.seen_ns.load(std::memory_order_relaxed);
  for (int i = 0; i < kPlaceWords; ++i)
    same = same && place.line[i].load(std::memory_order_relaxed) == words[i];
  const uint64_t changes = place.changes.load(std::memory_order_relaxed);
  place.changes.store(changes + 1, std::memory_order_relaxed);
  // Release: the words below do not become visible before the odd number.
  std::atomic_thread_fence(std::memory_order_release);
  place.seen_ns.store(now, std::memory_order_relaxed);
  if (!same) place.since_ns.store(now, std::memory_order_relaxed);
  if (ooms != place.ooms.load(std::memory_order_relaxed))
    place.oom_ns.store(now, std::memory_order_relaxed);
  place.ooms.store(ooms, std::memory_order_relaxed);
  place.in_loader.store(in_loader, std::memory_order_relaxed);
  for (int i = 0; i < kPlaceWords; ++i)
    place.line[i].store(words[i], std::memory_order_relaxed);
  // Release: whoever sees the even number sees the words above.
  place.changes.store(changes + 2, std::memory_order_release);
}

}  // namespace npu
