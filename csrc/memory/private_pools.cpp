// Private pools: who owns them, which requests they serve, and what becomes of
// one without owners. Requests that name no pool are served by the stream's
// ordinary pools or, while it captures, by a private pool.
#include <memory>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/watch.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

StreamPools* CachingAllocator::known_pools(const Stream& stream) const {
  StreamPools* pools = by_id_[uint64_t(stream.id()) % kStreamSlots];
  return pools && pools->stream == &stream ? pools : nullptr;
}

// The stream's part of the private pool `id`, for its captures or for requests
// that name the pool; 0: what serves the others. Made if need be, which may
// release the lock meanwhile.
StreamPools& CachingAllocator::pools(Stream& stream, uint64_t id, bool captured,
                                     Lock& lock) {
  if (StreamPools* known = id ? nullptr : known_pools(stream)) return *known;
  const auto search = [&]() -> StreamPools* {
    StreamPools* ownerless = nullptr;
    for (StreamPools* at = all_pools_; at; at = at->next) {
      if (at->stream != &stream) continue;
      if (id ? at->id == id && at->captured == captured : at->selected)
        return at;
      if (at->captured && !at->held) ownerless = at;
    }
    return captured ? ownerless : nullptr;
  };
  StreamPools* found = search();
  if (!found) {
    const auto owned = private_pools_.find(id);
    PoolRules rules;
    if (owned != private_pools_.end() && !captured) rules = owned->second.rules;
    lock.unlock();
    auto made = std::make_unique<StreamPools>(stream, id, captured, rules);
    lock.lock();
    found = search();
    if (!found) {
      made->next = all_pools_;
      found = all_pools_ = made.release();
    }
  }
  // A capture takes over what is left of an earlier pool, where blocks may
  // still be in use.
  if (captured) found->id = id;
  found->held = private_pools_.count(found->id);
  if (!id) by_id_[uint64_t(stream.id()) % kStreamSlots] = found;
  return *found;
}

// Whether requests that name no pool are served by `captured`; null: by the
// stream's ordinary pools.
void CachingAllocator::select(const Stream& stream, StreamPools* captured) {
  for (StreamPools* at = all_pools_; at; at = at->next)
    if (at->stream == &stream)
      at->selected = captured ? at == captured : at->id == 0;
  by_id_[uint64_t(stream.id()) % kStreamSlots] = captured;
}

void CachingAllocator::hold_pool(uint64_t id, PoolRules rules) {
  std::map<uint64_t, PrivatePool> made{{id, {}}};
  std::lock_guard lock(lock_);
  private_pools_.merge(made);  // moves a node, so that nothing is allocated
  PrivatePool& pool = private_pools_.find(id)->second;
  ++pool.owners;
  pool.rules.use_on_oom |= rules.use_on_oom;
  pool.rules.splits &= rules.splits;
  for (StreamPools* at = all_pools_; at; at = at->next)
    if (at->id == id) at->held = true;
}

void CachingAllocator::release_pool(uint64_t id, bool may_wait) {
  std::map<uint64_t, PrivatePool>::node_type gone;  // freed without the lock
  if (in_bad_fork()) return;
  {
    std::lock_guard lock(lock_);
    const auto owned = private_pools_.find(id);
    if (owned == private_pools_.end() || --owned->second.owners) return;
    gone = private_pools_.extract(owned);
    for (StreamPools* at = all_pools_; at; at = at->next)
      if (at->id == id) at->held = false;
  }
  graph_pool_freed(id);
  try {
    const std::vector<Point> points = mark_unused_segments(id);
    if (may_wait) wait_for(points);
  } catch (...) {
    // A capture, a guard or Ctrl-C forbids the wait, or the host has no memory.
    // The segments go at a later release.
  }
  release_marked_segments();
}

void CachingAllocator::begin_capture(Stream& stream, uint64_t id) {
  Lock lock(lock_);
  select(stream, &pools(stream, id, true, lock));
  ++capturing_;
}

void CachingAllocator::end_capture(Stream& stream) {
  std::lock_guard lock(lock_);
  select(stream, nullptr);
  if (--capturing_) return;
  // From here on, the order of replays orders the users of these blocks.
  while (deferred_.count) {
    Block* block = deferred_.pop();
    spare_uses_.drop(*block, [](const BlockUse&) { return true; });
    stats_.no_longer_pending(*block);
    block->pool->give(block, spares_);
  }
}

// What a capture takes is written by replays, and so is never borrowed.
Block* CachingAllocator::take_from_lenders(size_t size, size_t bytes,
                                           Stream& stream) {
  Lock lock(lock_);
  if (pools(stream, 0, false, lock).captured) return nullptr;
  stock_spares(kSparesPerRequest, lock);
  for (StreamPools* at = all_pools_; at; at = at->next) {
    if (at->stream != &stream || !at->held || !at->rules.use_on_oom) continue;
    if (Block* block = at->of(size).take(size, spares_)) {
      activate(block, bytes);
      return block;
    }
  }
  return nullptr;
}

}  // namespace npu
