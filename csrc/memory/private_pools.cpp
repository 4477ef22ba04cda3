// Private pools: they serve only requests that name them.
#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "csrc/memory/trace.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

Block* CachingAllocator::allocate_private(uint64_t mempool, size_t bytes,
                                          Stream& stream, OutOfMemory& why) {
  const size_t size = block_bytes(bytes, allocator_settings());
  Block* block = allocate_slow(size, bytes, stream, mempool, why);
  if (!block) return nullptr;
  trace(MemoryAction::kAlloc, device_, stream.id(), block->ptr, block->size);
  if (Observer* o = observer()) o->allocated(&stream, block->ptr, block->size);
  return block;
}

void CachingAllocator::hold_pool(uint64_t mempool, PoolRules rules) {
  std::map<uint64_t, PoolRules> made{{mempool, rules}};
  std::lock_guard lock(lock_);
  held_pools_.merge(made);  // moves a node, so that nothing is allocated
}

// Waits until the streams have done what they were given, and gives the free
// segments of the pool back to the driver; the others go when the cache is
// emptied. A finalizer may call this anywhere: where waiting is not allowed, it
// does not wait.
void CachingAllocator::release_pool(uint64_t mempool) {
  std::map<uint64_t, PoolRules>::node_type gone;  // freed without the lock
  std::vector<Point> points;
  if (in_bad_fork()) return;
  {
    Lock lock(lock_);
    gone = held_pools_.extract(mempool);
    while (points.capacity() < segments_.size()) {
      const size_t count = segments_.size();
      lock.unlock();
      points.reserve(count);
      lock.lock();
    }
    for (StreamPools* at = all_pools_; at; at = at->next)
      if (at->mempool == mempool) at->small.flush(spares_);
    for (auto& [address, segment] : segments_) {
      Block* block = segment.first;
      if (block->pool->mempool() != mempool || !releasable(block)) continue;
      block->release_marked = true;
      block->release_at = block->stream->tail();
      points.push_back({block->stream, block->release_at});
    }
  }
  try {
    wait_for(points);
  } catch (...) {
    // A capture, a guard or Ctrl-C forbids the wait. The marks stay, so the
    // segments go at a later release.
  }
  release_marked_segments();
}

Block* CachingAllocator::take_from_lenders(size_t size, size_t bytes,
                                           Stream& stream) {
  Lock lock(lock_);
  stock_spares(kSparesPerRequest, lock);
  for (StreamPools* at = all_pools_; at; at = at->next) {
    const auto held = held_pools_.find(at->mempool);
    if (at->stream != &stream || held == held_pools_.end() ||
        !held->second.use_on_oom)
      continue;
    if (Block* block = at->of(size).take(size, spares_)) {
      activate(block, bytes);
      return block;
    }
  }
  return nullptr;
}

}  // namespace npu
