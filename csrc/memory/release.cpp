// Gives cached memory back to the driver.
#include <algorithm>
#include "csrc/driver/driver.h"

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

// Its stream's queued tasks may still use a free block: they are ordered before
// its reuse by that stream, but not before a call of the driver. So unused
// segments are marked with the stream's tail, the tail is waited for without
// the lock, and then the segments go that are still marked, since nobody has
// used them meanwhile.
void CachingAllocator::empty_cache() {
  if (in_bad_fork()) return;  // the waits would never end
  wait_for(pending_points());
  wait_for(mark_unused_segments(0));
  release_marked_segments();
}

void CachingAllocator::wait_for(const std::vector<Point>& points) {
  for (const Point& point : points)
    host_wait(*point.stream, point.number, WaitReason::kAllocator);
}

// The points that streams have to reach until no present block is pending.
std::vector<CachingAllocator::Point> CachingAllocator::pending_points() {
  std::vector<Point> points;
  Lock lock(lock_);
  const auto count_uses = [&] {
    size_t count = 0;
    for (Block* block = pending_.first; block; block = block->link)
      for (BlockUse* use = block->uses; use; use = use->next) ++count;
    return count;
  };
  make_room(points, count_uses, lock);
  for (Block* block = pending_.first; block; block = block->link)
    for (BlockUse* use = block->uses; use; use = use->next)
      points.push_back({use->stream, use->number});
  return points;
}

bool CachingAllocator::releasable(const Block* block) const {
  return block->state == Block::State::kFree && block->whole_segment() &&
         !block->pool->part_of().held;
}

// Marks the segments of the private pool `id`, 0: of all, that have no block in
// use and no owner. Returns the points that streams have to reach before those
// segments may go.
std::vector<CachingAllocator::Point> CachingAllocator::mark_unused_segments(
    uint64_t id) {
  std::vector<Point> points;
  Lock lock(lock_);
  make_room(points, [&] { return segments_.size(); }, lock);
  poll_pending(pending_.count);
  for (StreamPools* at = all_pools_; at; at = at->next)
    if (!id || at->id == id) at->small.flush(spares_);
  for (auto& [address, segment] : segments_) {
    Block* block = segment.first;
    const StreamPools& of = block->pool->part_of();
    if (!releasable(block) || (id && of.id != id)) continue;
    block->release_marked = true;
    // Nothing queued uses what was captured when the graphs are gone.
    block->release_at = id && of.captured ? 0 : block->stream->tail();
    if (!block->stream->retired().reached(block->release_at))
      points.push_back({block->stream, block->release_at});
  }
  if (!points.empty()) stats_.count(MemoryStats::kSyncs);
  return points;
}

void CachingAllocator::release_marked_segments() {
  Segments released;
  {
    std::lock_guard lock(lock_);
    for (auto at = segments_.begin(); at != segments_.end();) {
      const auto next = std::next(at);
      Block* block = at->second.first;
      if (block->state == Block::State::kFree && block->whole_segment() &&
          block->release_marked &&
          block->stream->retired().reached(block->release_at)) {
        block->pool->extract(block);
        stats_.segment(block->pool->kind(), -int64_t(block->size));
        spares_.give(block);
        // Moves a node from map to map, so that nothing is allocated.
        released.insert(segments_.extract(at));
      }
      at = next;
    }
  }
  uint64_t bytes = 0;
  for (auto& [address, segment] : released) {
    tell_observers(&Observer::segment_freed, device_,
                   reinterpret_cast<void*>(address), segment.size);
    free_segment(address, segment);
    bytes += segment.size;
  }
  // Only now may the driver be asked for as much again.
  std::lock_guard lock(lock_);
  granted_ -= bytes;
}

// For garbage_collection_threshold: gives back the large segments that have
// been unused for longest, as many as it takes to get below the threshold.
// Never waits: a segment that its stream may still use stays.
void CachingAllocator::collect_garbage() {
  const double threshold = allocator_settings().gc_threshold;
  if (threshold == 0 || in_bad_fork()) return;
  std::vector<Block*> unused;
  {
    Lock lock(lock_);
    const uint64_t allowed = uint64_t(threshold * double(limit()));
    if (granted_ <= allowed) return;
    uint64_t excess = granted_ - allowed;
    make_room(unused, [&] { return segments_.size(); }, lock);
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

}  // namespace npu
