// garbage_collection_threshold: gives unused segments back before memory is
// short.
#include <algorithm>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

// Gives back the large segments that have been unused for longest, as many as
// it takes to get below the threshold. Never waits: a segment that its stream
// may still use stays.
void CachingAllocator::collect_garbage() {
  const double threshold = allocator_settings().gc_threshold;
  if (threshold == 0 || in_bad_fork()) return;
  std::vector<Block*> unused;
  {
    Lock lock(lock_);
    const uint64_t allowed = uint64_t(threshold * double(limit()));
    if (granted_ <= allowed) return;
    uint64_t excess = granted_ - allowed;
    while (unused.capacity() < segments_.size()) {
      const size_t count = segments_.size();
      lock.unlock();
      unused.reserve(count);
      lock.lock();
    }
    for (auto& [address, segment] : segments_) {
      Block* block = segment.first;
      if (block->freed_at && releasable(block) &&
          block->pool->kind() == PoolKind::kLarge &&
          block->stream->retired().reached(block->release_at))
        unused.push_back(block);
    }
    std::sort(unused.begin(), unused.end(),
              [](Block* a, Block* b) { return a->freed_at < b->freed_at; });
    for (Block* block : unused) {
      block->release_marked = true;
      if (block->size >= excess) break;
      excess -= block->size;
    }
  }
  if (!unused.empty()) release_marked_segments();
}

bool CachingAllocator::releasable(const Block* block) const {
  return block->state == Block::State::kFree && block->whole_segment() &&
         !block->pool->kept() && !held_pools_.count(block->pool->mempool());
}

}  // namespace npu
