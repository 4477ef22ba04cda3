// Memory that only those who name its pool are served from.
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/settings.h"
#include "csrc/memory/trace.h"
#include "csrc/taskqueue/observer.h"
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
  held_pools_.merge(made);  // a node moves: nothing is allocated
}

void CachingAllocator::release_pool(uint64_t mempool) {
  std::map<uint64_t, PoolRules>::node_type gone;  // freed without the lock
  std::lock_guard lock(lock_);
  gone = held_pools_.extract(mempool);
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
