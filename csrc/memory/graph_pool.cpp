// The memory of graphs: which allocations come from a private pool, and what
// becomes of that pool when its graphs are gone.
#include <memory>

#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/watch.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

void CachingAllocator::begin_capture(Stream& stream, uint64_t id) {
  auto made = std::make_unique<StreamPools>(stream);
  std::lock_guard lock(lock_);
  StreamPools* own = nullptr;
  for (StreamPools* at = all_pools_; at; at = at->next) {
    if (at->stream != &stream) continue;
    at->selected = false;
    if (at->graph_pool == id || (at->graph_pool == kAbandonedPool && !own))
      own = at;
  }
  if (!own) {
    made->next = all_pools_;
    own = all_pools_ = made.release();
  }
  own->graph_pool = id;
  own->selected = true;
  own->small.keep(id);
  own->large.keep(id);
  by_id_[uint64_t(stream.id()) % kStreamSlots] = own;
  ++capturing_;
}

void CachingAllocator::end_capture(Stream& stream) {
  std::lock_guard lock(lock_);
  for (StreamPools* at = all_pools_; at; at = at->next)
    if (at->stream == &stream) at->selected = at->graph_pool == 0;
  by_id_[uint64_t(stream.id()) % kStreamSlots] = nullptr;
  if (--capturing_) return;
  // From here on, the order of replays orders the users of these blocks.
  while (deferred_.count) {
    Block* block = deferred_.pop();
    spare_uses_.drop(*block, [](const BlockUse&) { return true; });
    BlockPool& pool = *block->pool;
    stats_.no_longer_pending(pool.kind(), block->size, block->requested);
    pool.give(block, spares_);
  }
}

bool CachingAllocator::is_abandoned(const BlockPool* pool) const {
  for (StreamPools* at = all_pools_; at; at = at->next)
    if (pool == &at->small || pool == &at->large)
      return at->graph_pool == kAbandonedPool;
  return false;
}

void CachingAllocator::free_pool(uint64_t id) {
  {
    std::lock_guard lock(lock_);
    for (StreamPools* at = all_pools_; at; at = at->next) {
      if (at->graph_pool != id) continue;
      at->graph_pool = kAbandonedPool;
      at->small.keep(0);
      at->large.keep(0);
      at->small.flush(spares_);
    }
    for (auto& [address, segment] : segments_) {
      Block* block = segment.first;
      if (block->state != Block::State::kFree || !block->whole_segment() ||
          !is_abandoned(block->pool))
        continue;
      block->release_marked = true;
      block->release_at = 0;
    }
  }
  graph_pool_freed(id);
  release_marked_segments();
}

}  // namespace npu
