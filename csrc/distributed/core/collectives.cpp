#include "csrc/distributed/core/collectives.h"

#include <stdio.h>
#include <string.h>

#include <algorithm>
#include <mutex>

#include "csrc/stats/segment.h"

namespace npu {
namespace {

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

void add(Counter& sum, uint64_t by) {
  // Relaxed: statistics order nothing.
  sum.fetch_add(by, std::memory_order_relaxed);
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

CollectiveTotals* totals_of(CollectiveLog& log, int group, const char* name) {
  static std::mutex mutex;  // held by whoever makes an entry
  std::unique_lock lock(mutex, std::defer_lock);
  for (CollectiveTotals& entry : log.totals) {
    // Acquire: whoever sees `known` sees the group and the name.
    if (!entry.known.load(std::memory_order_acquire)) {
      if (!lock.owns_lock()) lock.lock();
      // Relaxed: written under the mutex.
      if (!entry.known.load(std::memory_order_relaxed)) {
        put(entry.group, uint64_t(group));
        strncpy(entry.name, name, sizeof entry.name - 1);
        // Release: pairs with the acquire above, and with readers.
        entry.known.store(1, std::memory_order_release);
        return &entry;
      }
    }
    // Relaxed: written before `known`.
    if (entry.group.load(std::memory_order_relaxed) == uint64_t(group) &&
        !strncmp(entry.name, name, sizeof entry.name - 1))
      return &entry;
  }
  return nullptr;
}

LoggedCollective log_collective(const CollectiveCall& call) {
  CollectiveLog& log = collective_log();
  if (call.group < 0) return {};
  LoggedCollective made(totals_of(log, call.group, call.name), call.bytes,
                        call.now);
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
    const uint64_t writing = mine | CollectiveEntry::kWriting;
    if (!claim(entry.state, state, writing)) continue;
    const uint64_t written = mine | CollectiveEntry::kScheduled;
    write_guarded(entry.state, writing, written, [&] {
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
    });
    made.take(entry, number);
    return made;
  }
  add(log.dropped, 1);
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
  if (totals_) {
    add(totals_->bytes, bytes_);
    add(totals_->queued_ns, started_ - scheduled_);
    add(totals_->waited_ns, here ? here - started_ : 0);
    add(totals_->exposed_ns, exposed_ns);
    add(totals_->host_wait_ns, host_wait_ns);
    totals_->run_ns.add_shared(now - started_);
  }
  if (!entry_) return;
  put(entry_->ended_ns, now);
  set(CollectiveEntry::kCompleted);
}

void LoggedCollective::failed(uint64_t now) {
  if (totals_) add(totals_->failed, 1);
  if (!entry_) return;
  put(entry_->ended_ns, now);
  set(CollectiveEntry::kFailed);
}

void note_place(HostPlace& place, const char* line, bool in_loader,
                uint64_t ooms, uint64_t now) {
  uint64_t words[kPlaceWords] = {};
  strncpy(reinterpret_cast<char*>(words), line, sizeof words - 1);
  // Relaxed: only this thread writes them.
  bool same = place.seen_ns.load(std::memory_order_relaxed);
  for (int i = 0; i < kPlaceWords; ++i)
    same = same && place.line[i].load(std::memory_order_relaxed) == words[i];
  const uint64_t changes = place.changes.load(std::memory_order_relaxed);
  write_guarded(place.changes, changes + 1, changes + 2, [&] {
    put(place.seen_ns, now);
    if (!same) put(place.since_ns, now);
    if (ooms != place.ooms.load(std::memory_order_relaxed))
      put(place.oom_ns, now);
    put(place.ooms, ooms);
    put(place.in_loader, in_loader);
    for (int i = 0; i < kPlaceWords; ++i) put(place.line[i], words[i]);
  });
}

}  // namespace npu
