// Freed blocks that other streams may still touch.
#include "csrc/memory/caching_allocator.h"
#include "csrc/memory/trace.h"
#include "csrc/taskqueue/stream.h"

namespace npu {

void CachingAllocator::PendingBlocks::push(Block* block) {
  block->state = Block::State::kPending;
  block->link = nullptr;
  (first ? last->link : first) = block;
  last = block;
  ++count;
}

Block* CachingAllocator::PendingBlocks::pop() {
  Block* block = first;
  first = block->link;
  --count;
  return block;
}

// Removes the uses that are over; true when none is left.
bool CachingAllocator::drop_ended_uses(Block* block) {
  BlockUse** at = &block->uses;
  while (BlockUse* use = *at) {
    if (use->stream->retired().reached(use->number)) {
      *at = use->next;
      use->next = spare_uses_;
      spare_uses_ = use;
    } else {
      at = &use->next;
    }
  }
  return !block->uses;
}

void CachingAllocator::erase_stream(Block* block, Stream& stream) {
  std::lock_guard lock(lock_);
  for (BlockUse** at = &block->uses; *at; at = &(*at)->next) {
    BlockUse* use = *at;
    if (use->stream != &stream) continue;
    *at = use->next;
    use->next = spare_uses_;
    spare_uses_ = use;
    return;
  }
}

Stream* CachingAllocator::take_use(Block* block) {
  std::lock_guard lock(lock_);
  for (BlockUse** at = &block->uses; *at; at = &(*at)->next) {
    BlockUse* const use = *at;
    if (use->watch) continue;
    *at = use->next;
    use->next = spare_uses_;
    spare_uses_ = use;
    return use->stream;
  }
  return nullptr;
}

void CachingAllocator::free_used_elsewhere(Block* block) {
  BlockPool& pool = *block->pool;
  if (capturing_ && pool.kept()) [[unlikely]] {
    stats_.pending(pool.kind(), block->size, block->requested);
    return deferred_.push(block);
  }
  for (BlockUse* use = block->uses; use; use = use->next)
    use->number = use->stream->tail();
  if (drop_ended_uses(block)) {
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

// Looks at the oldest `checks` pending blocks, and puts those that are still in
// use at the end, so that a slow stream does not hold up the others' blocks.
void CachingAllocator::poll_pending(int checks) {
  if (checks > pending_.count) checks = pending_.count;
  while (checks--) {
    Block* block = pending_.pop();
    if (drop_ended_uses(block)) {
      BlockPool& pool = *block->pool;
      trace(MemoryAction::kFreeCompleted, device_, block->stream->id(),
            block->ptr, block->size);
      stats_.no_longer_pending(pool.kind(), block->size, block->requested);
      bump(block->stream->block().deferred_bytes, uint64_t{0} - block->size);
      pool.give(block, spares_);
    } else {
      pending_.push(block);
    }
  }
}

}  // namespace npu
