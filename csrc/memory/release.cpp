// Gives cached memory back to the driver.
#include "csrc/driver/registry.h"
#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "csrc/memory/trace.h"
#include "csrc/observe/observer.h"
#include "csrc/taskqueue/host_wait.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

void CachingAllocator::empty_cache() { release_cached(); }

// Its stream's queued tasks may still use a free block: they are ordered before
// its reuse by that stream, but not before a call of the driver. So unused
// segments are marked with the stream's tail, the tail is waited for without
// the lock, and then the segments go that are still marked, since nobody has
// used them meanwhile.
void CachingAllocator::release_cached() {
  if (in_bad_fork()) return;  // the waits would never end
  wait_for(pending_points());
  wait_for(mark_unused_segments());
  release_marked_segments();
}

void CachingAllocator::wait_for(const std::vector<Point>& points) {
  for (const Point& point : points)
    host_wait(*point.stream, point.number, WaitReason::kAllocator);
}

// The points that streams have to reach until no present block is pending.
std::vector<CachingAllocator::Point> CachingAllocator::pending_points() {
  std::vector<Point> points;
  size_t count = 0;
  const auto count_uses = [&] {
    count = 0;
    for (Block* block = pending_.first; block; block = block->link)
      for (BlockUse* use = block->uses; use; use = use->next) ++count;
  };
  Lock lock(lock_);
  for (count_uses(); points.capacity() < count; count_uses()) {
    lock.unlock();
    points.reserve(count);
    lock.lock();
  }
  for (Block* block = pending_.first; block; block = block->link)
    for (BlockUse* use = block->uses; use; use = use->next)
      points.push_back({use->stream, use->number});
  return points;
}

// Marks the segments that have no block in use. Returns the points that streams
// have to reach before those segments may go.
std::vector<CachingAllocator::Point> CachingAllocator::mark_unused_segments() {
  std::vector<Point> points;
  Lock lock(lock_);
  while (points.capacity() < segments_.size()) {
    const size_t count = segments_.size();
    lock.unlock();
    points.reserve(count);
    lock.lock();
  }
  poll_pending(pending_.count);
  for (StreamPools* at = all_pools_; at; at = at->next)
    at->small.flush(spares_);
  bool busy = false;
  for (auto& [address, segment] : segments_) {
    Block* block = segment.first;
    if (!releasable(block)) continue;
    block->release_marked = true;
    block->release_at = block->stream->tail();
    if (block->stream->retired().reached(block->release_at)) continue;
    points.push_back({block->stream, block->release_at});
    busy = true;
  }
  if (busy) ++stats_.sync_all_streams;
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
        stats_.segment_removed(block->pool->kind(), block->size);
        if (block->size >= allocator_settings().max_split_size)
          stats_.oversize_segments.decrease(1);
        spares_.give(block);
        // Moves a node from map to map, so that nothing is allocated.
        released.insert(segments_.extract(at));
      }
      at = next;
    }
  }
  uint64_t bytes = 0;
  for (auto& [address, segment] : released) {
    if (Observer* o = observer())
      o->segment_freed(reinterpret_cast<void*>(address), segment.size);
    trace(MemoryAction::kSegmentFree, device_, 0,
          reinterpret_cast<void*>(address), segment.size);
    free_segment(address, segment);
    bytes += segment.size;
  }
  // Only now may the driver be asked for as much again.
  std::lock_guard lock(lock_);
  granted_ -= bytes;
}

}  // namespace npu
