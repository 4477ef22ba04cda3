#include "csrc/stats/collectives.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "csrc/stats/segment.h"

namespace npu {
namespace {

// Relaxed: the entry's state orders its words.
void put(Counter& word, uint64_t value) {
  word.store(value, std::memory_order_relaxed);
}

void put_shapes(CollectiveEntry& entry, const CollectiveCall& call) {
  put(entry.tensors, call.count);
  int at = 0;
  for (size_t i = 0; i < call.count; ++i) {
    const TensorShape& t = call.tensors[i];
    const size_t dimensions = std::min<size_t>(t.dimensions, 255);
    if (at + 1 + int(dimensions) > kShapeWords) break;
    put(entry.shapes[at++], dimensions | uint64_t(t.dtype) << 8 |
                                uint64_t(t.output) << 16 | uint64_t(1) << 17 |
                                uint64_t(t.peer + 1) << 32);
    for (size_t d = 0; d < dimensions; ++d)
      put(entry.shapes[at++], uint64_t(t.sizes[d]));
  }
  if (at < kShapeWords) put(entry.shapes[at], 0);
}

}  // namespace

CollectiveLog& collective_log() {
  return *static_cast<CollectiveLog*>(
      segment_extension(sizeof(CollectiveLog), [](void* memory) {
        auto& log = *static_cast<CollectiveLog*>(memory);
        put(log.entry_bytes, sizeof(CollectiveEntry));
        put(log.entries, kCollectives);
        put(log.group_bytes, sizeof(CollectiveGroup));
        put(log.groups_held, kCollectiveGroups);
        // Release: whoever sees the version sees the words above.
        log.version.store(kCollectiveLogVersion, std::memory_order_release);
      }));
}

int log_group(const char* name, const char* token, const char* ranks, int rank,
              int size) {
  CollectiveLog& log = collective_log();
  // Relaxed: the counter only hands out places.
  const uint64_t place =
      log.groups_made.fetch_add(1, std::memory_order_relaxed);
  if (place >= uint64_t(kCollectiveGroups)) return -1;
  CollectiveGroup& group = log.groups[place];
  snprintf(group.name, sizeof group.name, "%s", name);
  snprintf(group.token, sizeof group.token, "%s", token);
  snprintf(group.ranks, sizeof group.ranks, "%s", ranks);
  put(group.rank, uint64_t(rank));
  put(group.size, uint64_t(size));
  // Release: whoever sees `known` set sees the words above.
  group.known.store(1, std::memory_order_release);
  return int(place);
}

void describe_group(int group, const char* description) {
  if (group < 0) return;
  char* to = collective_log().groups[group].description;
  snprintf(to, sizeof CollectiveGroup::description, "%s", description);
}

LoggedCollective log_collective(const CollectiveCall& call) {
  CollectiveLog& log = collective_log();
  if (call.group < 0) return {};
  CollectiveTotals* const totals = totals_of(log.totals, call.group, call.name);
  // Relaxed: statistics order nothing.
  if (!totals) log.uncounted.fetch_add(1, std::memory_order_relaxed);
  LoggedCollective made(totals, call.bytes, call.now);
  // The entry of a call that has not ended stays, however many calls follow: a
  // reader looks for just that call. Mostly the first entry tried is free.
  for (int tries = 0; tries < kCollectives; ++tries) {
    // Relaxed: the number only says which call this is.
    const uint64_t number = log.next.fetch_add(1, std::memory_order_relaxed);
    CollectiveEntry& entry = log.log[number % kCollectives];
    uint64_t state = entry.state.load(std::memory_order_relaxed);
    const uint64_t its = state % CollectiveEntry::kStates;
    if (its != CollectiveEntry::kFree && its != CollectiveEntry::kCompleted &&
        its != CollectiveEntry::kFailed)
      continue;
    const uint64_t mine = number * CollectiveEntry::kStates;
    // Acquire: our words come after those of the previous call of this entry.
    if (!entry.state.compare_exchange_strong(
            state, mine | CollectiveEntry::kWriting, std::memory_order_acquire,
            std::memory_order_relaxed))
      continue;
    // Release: the words below do not become visible before kWriting, so a
    // reader that finds the same number before and after has its words.
    std::atomic_thread_fence(std::memory_order_release);
    put(entry.group, uint64_t(call.group));
    put(entry.seq, call.seq | (call.message ? CollectiveEntry::kMessage : 0));
    uint64_t name[3] = {};
    strncpy(reinterpret_cast<char*>(name), call.name, sizeof name - 1);
    for (int i = 0; i < 3; ++i) put(entry.name[i], name[i]);
    put(entry.site, call.site);
    put(entry.scheduled_ns, call.now);
    put(entry.started_ns, 0);
    put(entry.ended_ns, 0);
    put(entry.all_here_ns, 0);
    put(entry.timeout_ms, call.timeout_ms);
    put(entry.root, uint64_t(call.root + 1));
    put(entry.reduce, uint64_t(call.reduce + 1));
    put(entry.stream, call.stream);
    put_shapes(entry, call);
    // Release: whoever sees kScheduled sees the entry's words.
    entry.state.store(mine | CollectiveEntry::kScheduled,
                      std::memory_order_release);
    made.take(entry, number);
    return made;
  }
  // Relaxed: statistics order nothing.
  log.dropped.fetch_add(1, std::memory_order_relaxed);
  return made;
}

void LoggedCollective::set(CollectiveEntry::State state) {
  // Release: the times are visible before the state that says they are set, and
  // all words before those of the next call that takes the ended entry.
  entry_->state.store(number_ * CollectiveEntry::kStates | state,
                      std::memory_order_release);
}

void LoggedCollective::started(uint64_t now) {
  started_ = now;
  if (!entry_) return;
  put(entry_->started_ns, now);
  set(CollectiveEntry::kStarted);
}

void LoggedCollective::ended(uint64_t now, uint64_t exposed_ns,
                             uint64_t host_wait_ns) {
  // Relaxed: this thread wrote it.
  const uint64_t here =
      entry_ ? entry_->all_here_ns.load(std::memory_order_relaxed) : 0;
  if (totals_)
    add_call(*totals_, bytes_,
             {started_ - scheduled_, now - started_, here ? here - started_ : 0,
              exposed_ns, host_wait_ns});
  if (!entry_) return;
  put(entry_->ended_ns, now);
  set(CollectiveEntry::kCompleted);
}

void LoggedCollective::failed(uint64_t now) {
  // Relaxed: statistics order nothing.
  if (totals_) totals_->failed.fetch_add(1, std::memory_order_relaxed);
  if (!entry_) return;
  put(entry_->ended_ns, now);
  set(CollectiveEntry::kFailed);
}

}  // namespace npu
