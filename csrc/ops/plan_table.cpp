// Finding plans, and burying those that are no longer wanted.
#include <atomic>
#include <unordered_map>

#include "csrc/ops/plan.h"
#include "csrc/taskqueue/graveyard.h"

namespace npu {
namespace {

Graveyard<Plan>& graveyard() {
  static auto* const instance = new Graveyard<Plan>;
  return *instance;
}

struct Tables {
  Stream* last_stream = nullptr;
  PlanTable* last = nullptr;
  std::unordered_map<Stream*, std::unique_ptr<PlanTable>> all;
};
thread_local Tables tables_;

// Relaxed: each table compares it with a size of its own.
std::atomic<size_t> plan_limit_{8192};

}  // namespace

size_t set_plan_limit(size_t plans) {
  return plan_limit_.exchange(plans, std::memory_order_relaxed);
}

void retire_plan(std::unique_ptr<Plan> plan, Stream& stream) {
  // No task from the tail on names the plan.
  graveyard().bury(std::move(plan), {{&stream, stream.tail()}});
}

PlanTable& plan_table(Stream& stream) {
  if (tables_.last_stream == &stream) [[likely]]
    return *tables_.last;
  auto& table = tables_.all[&stream];
  if (!table) table = std::make_unique<PlanTable>(stream);
  tables_.last_stream = &stream;
  tables_.last = table.get();
  return *table;
}

PlanTable::~PlanTable() { clear(); }

void PlanTable::clear() {
  for (Entry& entry : entries_)
    if (entry.plan) retire_plan(std::move(entry.plan), stream_);
  entries_ = std::vector<Entry>(256);
  size_ = 0;
}

Plan* PlanTable::find(const Key& key, uint64_t hash) const {
  const size_t mask = entries_.size() - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    const Entry& entry = entries_[i];
    if (!entry.plan) return nullptr;
    if (entry.hash == hash && entry.key.size() == key.key.size() &&
        !memcmp(entry.key.data(), key.key.data(),
                key.key.size() * sizeof(uint64_t)))
      return entry.plan.get();
  }
}

void PlanTable::insert(std::vector<uint64_t> key, uint64_t hash,
                       std::unique_ptr<Plan> plan) {
  if (size_ >= plan_limit_.load(std::memory_order_relaxed)) clear();
  if (2 * (size_ + 1) > entries_.size()) {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    const size_t mask = entries_.size() - 1;
    for (Entry& entry : old) {
      if (!entry.plan) continue;
      size_t i = entry.hash & mask;
      while (entries_[i].plan) i = (i + 1) & mask;
      entries_[i] = std::move(entry);
    }
  }
  const size_t mask = entries_.size() - 1;
  size_t i = hash & mask;
  while (entries_[i].plan) i = (i + 1) & mask;
  entries_[i] = {hash, std::move(key), std::move(plan)};
  ++size_;
}

}  // namespace npu
