#include "csrc/memory/caching_allocator.h"

#include <stdio.h>
#include <stdlib.h>

#include <memory>
#include <new>

#include "csrc/driver/driver.h"
#include "csrc/engine/engine.h"
#include "csrc/memory/settings.h"
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
  const double fraction = allocator_settings().memory_fraction;
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

// Makes sure of `count` spare blocks; may release the lock meanwhile.
void CachingAllocator::stock_spares(int count, Lock& lock) {
  while (spares_.count() < count) {
    lock.unlock();
    SpareBlocks::Chunk* chunk = SpareBlocks::make();
    lock.lock();
    spares_.add(chunk);
  }
}

[[gnu::hot]] void CachingAllocator::activate(Block* block, size_t requested) {
  block->state = Block::State::kActive;
  block->requested = requested;
  stats_.allocated(*block);
  if (block->size >= allocator_settings().max_split_size) [[unlikely]]
    stats_.oversize_block(1);
}

[[gnu::hot]] Block* CachingAllocator::allocate(size_t bytes, Stream& stream,
                                               OutOfMemory& why,
                                               uint64_t private_pool) {
  const size_t size = block_bytes(bytes, allocator_settings());
  Block* block = nullptr;
  {
    std::lock_guard lock(lock_);
    if (pending_.count) [[unlikely]]
      poll_pending(kPendingChecks);
    StreamPools* pools = private_pool ? nullptr : known_pools(stream);
    if (pools && spares_.count()) [[likely]] {
      block = pools->of(size).take(size, spares_);
      if (block) [[likely]]
        activate(block, bytes);
    }
  }
  if (!block) [[unlikely]] {
    block = allocate_slow(size, bytes, stream, private_pool, why);
    if (!block) return nullptr;
  }
  tell_observers(&Observer::allocated, stream, block->ptr, block->size);
  return block;
}

Block* CachingAllocator::allocate_slow(size_t size, size_t bytes,
                                       Stream& stream, uint64_t id,
                                       OutOfMemory& why) {
  if (Block* block = take_cached(size, bytes, stream, id)) return block;
  collect_garbage();
  if (Block* block = grow(size, bytes, stream, id)) return block;
  {
    std::lock_guard lock(lock_);
    stats_.count(MemoryStats::kRetries);
  }
  empty_cache();
  if (Block* block = take_cached(size, bytes, stream, id)) return block;
  if (Block* block = grow(size, bytes, stream, id)) return block;
  if (Block* block = take_from_lenders(size, bytes, stream)) return block;
  {
    std::lock_guard lock(lock_);
    stats_.count(MemoryStats::kOoms);
    why = out_of_memory(bytes);
  }
  tell_observers(&Observer::out_of_memory, stream, bytes, why.free);
  return nullptr;
}

// Looks for a block again, after all pending blocks have been looked at. Null:
// nothing fits.
Block* CachingAllocator::take_cached(size_t size, size_t bytes, Stream& stream,
                                     uint64_t id) {
  Lock lock(lock_);
  BlockPool& pool = pools(stream, id, false, lock).of(size);
  stock_spares(kSparesPerRequest, lock);
  poll_pending(pending_.count);
  Block* block = pool.take(size, spares_);
  if (block) activate(block, bytes);
  return block;
}

// Asks the driver for a segment and takes the block from it. Null when the
// limit or the driver does not allow it.
Block* CachingAllocator::grow(size_t size, size_t bytes, Stream& stream,
                              uint64_t id) {
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
    pool_of_size = &pools(stream, id, false, lock).of(size);
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
  stats_.segment(pool.kind(), int64_t(segment_bytes));
  pool.split(block, size, spares_);
  activate(block, bytes);
  lock.unlock();
  tell_observers(&Observer::segment_allocated, stream, memory, segment_bytes);
  return block;
}

[[gnu::hot]] void CachingAllocator::free(Block* block) {
  if (in_bad_fork()) [[unlikely]]
    return;
  if (observers()) [[unlikely]] {
    Lock lock(lock_);
    const bool captured = block->pool->part_of().graph_pool() != 0;
    lock.unlock();
    tell_observers(&Observer::freed, *block->stream, block->ptr, block->size,
                   captured ? FreedTo::kGraph : FreedTo::kStream);
  }
  Lock lock(lock_);
  if (block->state != Block::State::kActive) [[unlikely]]
    not_active(block);
  if (block->watched) [[unlikely]] {
    block->watched = false;
    // Nobody else frees the block meanwhile.
    const uint64_t graph_pool = block->pool->part_of().graph_pool();
    lock.unlock();
    memory_freed(block->ptr, block->size, graph_pool);
    lock.lock();
  }
  if (block->size >= allocator_settings().max_split_size) [[unlikely]]
    stats_.oversize_block(-1);
  if (block->uses && awaits_others(block)) [[unlikely]]
    return;
  stats_.freed(*block);
  tell_observers(&Observer::free_completed, *block->stream, block->ptr,
                 block->size);
  block->pool->give(block, spares_);
}

void CachingAllocator::record_stream(Block* block, Stream& stream) {
  if (block->stream == &stream) return;
  tell_observers(&Observer::stream_recorded, stream, block->ptr);
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

void CachingAllocator::erase_stream(Block* block, Stream& stream) {
  std::lock_guard lock(lock_);
  spare_uses_.drop(*block,
                   [&](const BlockUse& use) { return use.stream == &stream; });
}

Stream* CachingAllocator::take_use(Block* block) {
  std::lock_guard lock(lock_);
  Stream* taken = nullptr;
  spare_uses_.drop(*block, [&](const BlockUse& use) {
    if (taken) return false;
    taken = use.stream;
    return true;
  });
  return taken;
}

// Whether other streams may still touch the block, which its owner has freed.
// It is then given to its pool later.
bool CachingAllocator::awaits_others(Block* block) {
  if (capturing_ && block->pool->part_of().graph_pool()) [[unlikely]] {
    deferred_.push(block);
  } else {
    spare_uses_.note_free(*block);
    if (spare_uses_.have_ended(*block)) return false;
    bump(block->stream->block().deferred_bytes, block->size);
    pending_.push(block);
  }
  stats_.pending(*block);
  return true;
}

void CachingAllocator::poll_pending(int checks) {
  pending_.poll(checks, spare_uses_, [this](Block* block) {
    tell_observers(&Observer::free_completed, *block->stream, block->ptr,
                   block->size);
    stats_.no_longer_pending(*block);
    bump(block->stream->block().deferred_bytes, uint64_t{0} - block->size);
    block->pool->give(block, spares_);
  });
}

}  // namespace npu
