// Blocks whose end somebody wants to know who does not own them.
#include <memory>

#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/call_site.h"

namespace npu {

bool CachingAllocator::watch(const void* address, BlockWatch& watch) {
  auto use = std::make_unique<BlockUse>();
  std::lock_guard lock(lock_);
  const auto segment = segment_of(address);
  if (segment == segments_.end()) return false;
  Block* block = segment->second.first;
  while (static_cast<const char*>(address) >=
         static_cast<char*>(block->ptr) + block->size)
    block = block->after;
  if (block->state != Block::State::kActive || block->pool->kept())
    return false;
  watch.block = block;
  *use = {nullptr, 0, block->uses, &watch};
  block->uses = use.release();
  return true;
}

void CachingAllocator::unwatch(BlockWatch& watch) {
  std::lock_guard lock(lock_);
  if (!watch.block) return;
  spare_uses_.drop(*watch.block,
                   [&](const BlockUse& use) { return use.watch == &watch; });
  watch.block = nullptr;
}

// The block is about to be freed by its owner, which nobody else can do, so
// that the lock may be released meanwhile: to know the line that frees may take
// the interpreter's.
void CachingAllocator::end_watches(Block* block, Lock& lock) {
  const auto watched = [&] {
    BlockUse* use = block->uses;
    while (use && !use->watch) use = use->next;
    return use != nullptr;
  };
  if (!watched()) return;
  lock.unlock();
  const uint32_t site = call_stack_id();
  lock.lock();
  spare_uses_.drop(*block, [&](const BlockUse& use) {
    if (!use.watch) return false;
    BlockWatch& watch = *use.watch;
    watch.block = nullptr;
    watch.ended_at = site;
    watch.ended.store(true, std::memory_order_release);
    watch.any_ended->store(true, std::memory_order_release);
    return true;
  });
}

}  // namespace npu
