#include "csrc/memory/caching_allocator.h"

#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <new>

#include "csrc/driver/registry.h"
#include "csrc/engine/engine.h"
#include "csrc/memory/settings.h"
#include "csrc/memory/trace.h"
#include "csrc/memory/watch.h"
#include "csrc/observe/observer.h"
#include "csrc/stats/segment.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

[[noreturn]] void not_active(const Block* block) {
  fprintf(stderr, "npu_dispatch: free of %p, which is not in use\n",
          block->ptr);
  abort();
}

}  // namespace

CachingAllocator::CachingAllocator(int device)
    : device_(device),
      total_(driver().memory_total(device)),
      stats_(npu::segment().devices[device]) {
  const double fraction = read_allocator_settings().memory_fraction;
  if (fraction > 0) fraction_ = fraction;
}

CachingAllocator::~CachingAllocator() {
  for (auto& [address, segment] : segments_) free_segment(address, segment);
  for (auto& [address, segment] : segments_) {
    for (Block* block = segment.first; block; block = block->after)
      spare_uses_.drop(*block, [](const BlockUse&) { return true; });
  }
  while (StreamPools* pools = all_pools_) {
    all_pools_ = pools->next;
    delete pools;
  }
}

StreamPools* CachingAllocator::known_pools(const Stream& stream) const {
  StreamPools* pools = by_id_[uint64_t(stream.id()) % kStreamSlots];
  return pools && pools->stream == &stream ? pools : nullptr;
}

// The pools of a stream, made if need be; may release the lock meanwhile.
StreamPools& CachingAllocator::pools(Stream& stream, uint64_t mempool,
                                     Lock& lock) {
  if (StreamPools* known = mempool ? nullptr : known_pools(stream))
    return *known;
  const auto search = [&] {
    StreamPools* at = all_pools_;
    while (at &&
           (at->stream != &stream || at->mempool != mempool || !at->selected))
      at = at->next;
    return at;
  };
  StreamPools* found = search();
  if (!found) {
    const auto held = held_pools_.find(mempool);
    const bool splits = held == held_pools_.end() || held->second.splits;
    lock.unlock();
    auto made = std::make_unique<StreamPools>(stream, mempool, splits);
    lock.lock();
    found = search();
    if (!found) {
      made->next = all_pools_;
      found = all_pools_ = made.release();
    }
  }
  if (!mempool) by_id_[uint64_t(stream.id()) % kStreamSlots] = found;
  return *found;
}

// Makes sure of `count` spare blocks; may release the lock meanwhile.
void CachingAllocator::stock_spares(int count, Lock& lock) {
  while (spares_.count() < count) {
    lock.unlock();
    SpareBlocks::Chunk* chunk = SpareBlocks::make();
    lock.lock();
    spares_.add(chunk);
  }
}

void CachingAllocator::activate(Block* block, size_t requested) {
  block->state = Block::State::kActive;
  block->requested = requested;
  stats_.allocated(block->pool->kind(), block->size, requested);
  if (block->size >= allocator_settings().max_split_size) [[unlikely]]
    stats_.oversize_allocations.increase(1);
}

Block* CachingAllocator::allocate(size_t bytes, Stream& stream,
                                  OutOfMemory& why) {
  const size_t size = block_bytes(bytes, allocator_settings());
  Block* block = nullptr;
  {
    std::lock_guard lock(lock_);
    if (pending_.count) [[unlikely]]
      poll_pending(kPendingChecks);
    StreamPools* pools = known_pools(stream);
    if (pools && spares_.count()) [[likely]] {
      block = pools->of(size).take(size, spares_);
      if (block) [[likely]]
        activate(block, bytes);
    }
  }
  if (!block) [[unlikely]] {
    block = allocate_slow(size, bytes, stream, 0, why);
    if (!block) return nullptr;
  }
  trace(MemoryAction::kAlloc, device_, stream.id(), block->ptr, block->size);
  if (Observer* o = observer()) [[unlikely]]
    o->allocated(&stream, block->ptr, block->size);
  return block;
}

Block* CachingAllocator::allocate_slow(size_t size, size_t bytes,
                                       Stream& stream, uint64_t mempool,
                                       OutOfMemory& why) {
  if (Block* block = take_cached(size, bytes, stream, mempool)) return block;
  collect_garbage();
  if (Block* block = grow(size, bytes, stream, mempool)) return block;
  {
    std::lock_guard lock(lock_);
    stats_.retried();
  }
  release_cached();
  if (Block* block = take_cached(size, bytes, stream, mempool)) return block;
  if (Block* block = grow(size, bytes, stream, mempool)) return block;
  if (Block* block = take_from_lenders(size, bytes, stream)) return block;
  {
    std::lock_guard lock(lock_);
    stats_.out_of_memory();
    why = out_of_memory(bytes);
  }
  trace(MemoryAction::kOutOfMemory, device_, stream.id(),
        reinterpret_cast<void*>(why.free), bytes);
  return nullptr;
}

// Looks for a block again, after all pending blocks have been looked at. Null:
// nothing fits.
Block* CachingAllocator::take_cached(size_t size, size_t bytes, Stream& stream,
                                     uint64_t mempool) {
  Lock lock(lock_);
  BlockPool& pool = pools(stream, mempool, lock).of(size);
  stock_spares(kSparesPerRequest, lock);
  poll_pending(pending_.count);
  Block* block = pool.take(size, spares_);
  if (block) activate(block, bytes);
  return block;
}

// Asks the driver for a segment and takes the block from it. Null when the
// limit or the driver does not allow it.
Block* CachingAllocator::grow(size_t size, size_t bytes, Stream& stream,
                              uint64_t mempool) {
  const size_t segment_bytes = segment_size(size);
  Lock lock(lock_);
  const uint64_t most = limit();
  if (granted_ > most || segment_bytes > most - granted_) return nullptr;
  granted_ += segment_bytes;
  lock.unlock();
  void* const memory = driver().segment_alloc(device_, segment_bytes);
  const auto give_up = [&] {
    if (memory) driver().segment_free(device_, memory, segment_bytes);
    if (!lock.owns_lock()) lock.lock();
    granted_ -= segment_bytes;
  };
  if (!memory) {
    give_up();
    return nullptr;
  }
  Segments added;
  BlockPool* pool_of_size;
  try {
    added.emplace(reinterpret_cast<uintptr_t>(memory),
                  Segment{nullptr, segment_bytes, -1});
    lock.lock();
    pool_of_size = &pools(stream, mempool, lock).of(size);
    stock_spares(kSparesPerRequest, lock);
  } catch (const std::bad_alloc&) {  // the host has no memory
    give_up();
    throw;
  }
  BlockPool& pool = *pool_of_size;
  Block* block = spares_.take();
  block->ptr = memory;
  block->size = segment_bytes;
  block->stream = &stream;
  block->device = device_;
  block->pool = &pool;
  block->before = block->after = nullptr;
  added.begin()->second.first = block;
  segments_.merge(added);
  stats_.segment_added(pool.kind(), segment_bytes);
  if (segment_bytes >= allocator_settings().max_split_size)
    stats_.oversize_segments.increase(1);
  pool.split(block, size, spares_);
  activate(block, bytes);
  lock.unlock();
  trace(MemoryAction::kSegmentAlloc, device_, stream.id(), memory,
        segment_bytes);
  return block;
}

void CachingAllocator::free(Block* block) {
  if (in_bad_fork()) [[unlikely]]
    return;
  if (Observer* o = observer()) [[unlikely]] {
    Lock lock(lock_);
    const bool kept = block->pool->kept();
    lock.unlock();
    o->freed(block->stream, block->ptr, block->size,
             kept ? FreedTo::kGraph : FreedTo::kStream);
  }
  trace(MemoryAction::kFreeRequested, device_, block->stream->id(), block->ptr,
        block->size);
  Lock lock(lock_);
  if (block->state != Block::State::kActive) [[unlikely]]
    not_active(block);
  if (block->watched) [[unlikely]] {
    block->watched = false;
    // Nobody else frees the block meanwhile.
    const uint64_t graph_pool = block->pool->graph_pool();
    lock.unlock();
    memory_freed(block->ptr, block->size, graph_pool);
    lock.lock();
  }
  if (block->size >= allocator_settings().max_split_size) [[unlikely]]
    stats_.oversize_allocations.decrease(1);
  if (block->uses) [[unlikely]]
    return free_used_elsewhere(block);
  BlockPool& pool = *block->pool;
  stats_.freed(pool.kind(), block->size, block->requested);
  trace(MemoryAction::kFreeCompleted, device_, block->stream->id(), block->ptr,
        block->size);
  pool.give(block, spares_);
}

void CachingAllocator::record_stream(Block* block, Stream& stream) {
  if (block->stream == &stream) return;
  if (Observer* o = observer()) [[unlikely]]
    o->stream_recorded(stream, block->ptr);
  std::unique_ptr<BlockUse> made;
  Lock lock(lock_);
  for (;;) {
    for (BlockUse* use = block->uses; use; use = use->next)
      if (use->stream == &stream) return;
    if (made) spare_uses_.give(made.release());
    if (spare_uses_.add(*block, &stream)) return;
    lock.unlock();
    made = std::make_unique<BlockUse>();
    lock.lock();
  }
}

}  // namespace npu
