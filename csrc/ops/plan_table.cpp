// Finds plans, and drops those that are no longer wanted.
#include <atomic>
#include <unordered_map>

#include "csrc/ops/plan.h"
#include "csrc/taskqueue/deferred_delete.h"

namespace npu {
namespace {

DeferredDelete<Plan>& evicted() {
  static auto* const instance = new DeferredDelete<Plan>;
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
  // No task from the tail on names the plan, which is no longer in the table.
  evicted().after({&stream, stream.tail()}, std::move(plan));
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

PlanTable::~PlanTable() {
  for (Entry& entry : entries_)
    if (entry.plan) retire_plan(std::move(entry.plan), stream_);
}

Plan* PlanTable::find(const Key& key, uint64_t hash) const {
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
  while (size_ > 0 && (bytes_ > kMaxBytes || size_ >= most)) {
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

template <typename Suits>
std::shared_ptr<Family> PlanTable::find_family(const Words& identity,
                                               uint64_t hash,
                                               Suits suits) const {
  const auto [first, last] = families_.equal_range(hash);
  for (auto at = first; at != last; ++at)
    if (at->second.identity.size() == identity.size() &&
        !memcmp(at->second.identity.data(), identity.data(),
                identity.size() * sizeof(uint64_t)) &&
        suits(*at->second.family))
      return at->second.family;
  return nullptr;
}

std::shared_ptr<Family> PlanTable::known_family(const Key& key) const {
  Words identity;
  key.identity(identity);
  return find_family(identity, hash_of(identity),
                     [](const Family&) { return true; });
}

std::shared_ptr<Family> PlanTable::family(const Op& op, const Key& key,
                                          at::ArrayRef<c10::IValue> stack,
                                          const std::vector<OutSpec>& outs) {
  Words identity;
  key.identity(identity);
  const uint64_t hash = hash_of(identity);
  if (auto known = find_family(
          identity, hash, [&](const Family& one) { return one.suits(outs); }))
    return known;
  // A family that no plan has, not even an evicted one, may go.
  if (families_.size() >= kMaxFamilies)
    std::erase_if(families_, [](const auto& entry) {
      return entry.second.family.use_count() == 1;
    });
  auto family = std::make_shared<Family>(op, stack, outs);
  if (families_.size() < 2 * kMaxFamilies)
    families_.insert({hash,
                      {std::vector<uint64_t>(identity.data(),
                                             identity.data() + identity.size()),
                       family}});
  return family;
}

}  // namespace npu
