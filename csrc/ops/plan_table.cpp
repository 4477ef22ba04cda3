// Finds plans, and drops those that are no longer wanted.
#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "csrc/base/per_thread.h"
#include "csrc/ops/plan.h"
#include "csrc/taskqueue/deferred_delete.h"

namespace npu {
namespace {

DeferredDelete<Plan>& evicted() {
  static auto* const instance = new DeferredDelete<Plan>;
  return *instance;
}

// The table of this thread that was asked for last.
struct Last {
  Stream* stream;
  PlanTable* table;
};
constinit thread_local Last last_{};

struct Tables {
  ~Tables() { last_ = {}; }
  std::unordered_map<Stream*, std::unique_ptr<PlanTable>> by_stream;
};

// Relaxed: each table compares it with a size of its own.
std::atomic<size_t> plan_limit_{8192};

// Relaxed: a count.
std::atomic<size_t> tables_{0};

// The tables of all threads share kAll bytes, of which none gets more than
// kMost or less than kLeast. A thread gives plans up when it makes one: one
// that launches nothing any more keeps what it had when it last did.
size_t most_bytes() {
  constexpr size_t kAll = 16 << 20, kMost = 4 << 20, kLeast = 256 << 10;
  return std::clamp(kAll / tables_.load(std::memory_order_relaxed), kLeast,
                    kMost);
}

}  // namespace

size_t set_plan_limit(size_t plans) {
  return plan_limit_.exchange(plans, std::memory_order_relaxed);
}

void retire_plan(std::unique_ptr<Plan> plan, Stream& stream) {
  // No task from the tail on names the plan, which is no longer in the table.
  evicted().after({&stream, stream.tail()}, std::move(plan));
}

PlanTable& plan_table(Stream& stream) {
  if (last_.stream == &stream) [[likely]]
    return *last_.table;
  auto& table = PerThread<Tables>::get().by_stream[&stream];
  if (!table) table = std::make_unique<PlanTable>(stream);
  last_ = {&stream, table.get()};
  return *table;
}

PlanTable::PlanTable(Stream& stream) : stream_(stream) {
  tables_.fetch_add(1, std::memory_order_relaxed);
}

PlanTable::~PlanTable() {
  // In a forked child another thread of the parent may hold the locks for good.
  if (in_bad_fork()) {
    for (Entry& entry : entries_) (void)entry.plan.release();
    return;
  }
  tables_.fetch_sub(1, std::memory_order_relaxed);
  for (Entry& entry : entries_)
    if (entry.plan) retire_plan(std::move(entry.plan), stream_);
  // A thread that ends may be the last one that gives plans up.
  evicted().collect();
  free_frames();
}

[[gnu::hot]] Plan* PlanTable::find(const Key& key, uint64_t hash) const {
  const size_t mask = entries_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Entry& entry = entries_[i];
    if (!entry.plan) return nullptr;
    if (entry.hash == hash && entry.key_words == key.key.size() &&
        !memcmp(entry.key, key.key.data(), key.key.size() * sizeof(uint64_t))) {
      if (!entry.used) entry.used = true;
      return entry.plan.get();
    }
  }
}

Plan& PlanTable::insert(uint64_t hash, std::unique_ptr<Plan> plan,
                        bool may_evict) {
  if (may_evict) make_room();
  if (2 * (size_ + 1) > entries_.size()) grow();
  const size_t mask = entries_.size() - 1;
  size_t i = hash & mask;
  while (entries_[i].plan) i = (i + 1) & mask;
  const auto key = plan->key();
  bytes_ += bytes_of(*plan);
  entries_[i] = {hash, key.data(), uint32_t(key.size()), false,
                 std::move(plan)};
  ++size_;
  return *entries_[i].plan;
}

void PlanTable::grow() {
  std::vector<Entry> old(entries_.size() * 2);
  old.swap(entries_);
  hand_ = 0;
  const size_t mask = entries_.size() - 1;
  for (Entry& entry : old) {
    if (!entry.plan) continue;
    size_t i = entry.hash & mask;
    while (entries_[i].plan) i = (i + 1) & mask;
    entries_[i] = std::move(entry);
  }
}

void PlanTable::make_room() {
  const size_t mask = entries_.size() - 1;
  // Relaxed: each table compares it with a size of its own.
  const size_t most = plan_limit_.load(std::memory_order_relaxed);
  const size_t bytes = most_bytes();
  while (size_ > 0 && (bytes_ > bytes || size_ >= most)) {
    const Entry& entry = entries_[hand_];
    if (entry.plan && !entry.used) {
      remove(hand_);  // another plan may have moved there now
      continue;
    }
    entry.used = false;
    hand_ = (hand_ + 1) & mask;
  }
}

void PlanTable::remove(size_t at) {
  bytes_ -= bytes_of(*entries_[at].plan);
  retire_plan(std::move(entries_[at].plan), stream_);
  entries_[at] = {};
  --size_;
  // Plans that were put further on because this place was taken move up.
  const size_t mask = entries_.size() - 1;
  for (size_t i = (at + 1) & mask; entries_[i].plan; i = (i + 1) & mask) {
    const size_t home = entries_[i].hash & mask;
    if (((i - home) & mask) < ((i - at) & mask)) continue;
    entries_[at] = std::move(entries_[i]);
    entries_[i] = {};
    at = i;
  }
}

}  // namespace npu
