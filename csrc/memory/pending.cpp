// Freed blocks that other streams may still touch.
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/trace.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

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

void CachingAllocator::free_used_elsewhere(Block* block) {
  BlockPool& pool = *block->pool;
  if (capturing_ && pool.kept()) [[unlikely]] {
    stats_.pending(pool.kind(), block->size, block->requested);
    return deferred_.push(block);
  }
  spare_uses_.note_free(*block);
  if (spare_uses_.have_ended(*block)) {
    stats_.freed(pool.kind(), block->size, block->requested);
    trace(MemoryAction::kFreeCompleted, device_, block->stream->id(),
          block->ptr, block->size);
    pool.give(block, spares_);
  } else {
    stats_.pending(pool.kind(), block->size, block->requested);
    bump(block->stream->block().deferred_bytes, block->size);
    pending_.push(block);
  }
}

void CachingAllocator::poll_pending(int checks) {
  pending_.poll(checks, spare_uses_, [this](Block* block) {
    BlockPool& pool = *block->pool;
    trace(MemoryAction::kFreeCompleted, device_, block->stream->id(),
          block->ptr, block->size);
    stats_.no_longer_pending(pool.kind(), block->size, block->requested);
    bump(block->stream->block().deferred_bytes, uint64_t{0} - block->size);
    pool.give(block, spares_);
  });
}

}  // namespace npu
