#include "csrc/memory/pool.h"

#include <bit>
#include <memory>

#include "csrc/base/align.h"
#include "csrc/base/clock.h"
#include "csrc/memory/settings.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

constexpr size_t kSmallSegment = 2 * kBytesPerMiB;
constexpr size_t kMediumSegment = 20 * kBytesPerMiB;
constexpr size_t kMediumLimit =
    10 * kBytesPerMiB;  // from here on, segments fit
constexpr size_t kLargeQuantum = 2 * kBytesPerMiB;

bool worth_splitting(PoolKind kind, size_t size, size_t rest) {
  if (kind == PoolKind::kSmall) return rest >= kBlockQuantum;
  return rest > kSmallBlock && size < allocator_settings().max_split_size;
}

// Whether max_split_size lets a large block serve a request: a block above it
// serves no request below it, and none that would waste too much of the block.
bool may_serve(const Block* block, size_t size) {
  const AllocatorSettings& settings = allocator_settings();
  const size_t most = settings.max_split_size;
  if (size < most) return block->size < most;
  return block->size < size + settings.max_non_split_rounding;
}

size_t power_index(uint64_t bytes) {
  if (bytes < kBytesPerMiB) return 0;
  const size_t index =
      size_t(std::bit_width(bytes)) - size_t(std::bit_width(kBytesPerMiB));
  return index < AllocatorSettings::kPowers ? index
                                            : AllocatorSettings::kPowers - 1;
}

}  // namespace

size_t block_bytes(size_t bytes, const AllocatorSettings& settings) {
  // More than any device has; leaves room for rounding up.
  constexpr size_t kAbsurd = size_t{1} << 60;
  if (bytes >= kAbsurd) return kAbsurd;
  if (settings.rounds) [[unlikely]] {
    const uint32_t divisions = settings.roundup_divisions[power_index(bytes)];
    if (divisions > 1 && bytes > kBlockQuantum * divisions)
      return round_up(round_up(bytes, std::bit_floor(bytes) / divisions),
                      kBlockQuantum);
  }
  return round_up(bytes, kBlockQuantum);
}

size_t segment_size(size_t size) {
  if (size <= kSmallBlock) return kSmallSegment;
  if (size < kMediumLimit) return kMediumSegment;
  return round_up(size, kLargeQuantum);
}

SpareBlocks::Chunk* SpareBlocks::make() {
  auto chunk = std::make_unique<Chunk>();
  FreeTree nursery;
  for (Block& block : chunk->blocks)
    block.node = nursery.extract(nursery.insert(&block).first);
  return chunk.release();
}

void SpareBlocks::add(Chunk* chunk) {
  chunk->next = chunks_;
  chunks_ = chunk;
  for (Block& block : chunk->blocks) give(&block);
}

SpareBlocks::~SpareBlocks() {
  while (Chunk* chunk = chunks_) {
    chunks_ = chunk->next;
    delete chunk;
  }
}

Block* QuickLists::pop_any() {
  for (size_t word = 0; word < used_.size(); ++word) {
    while (used_[word]) {
      const size_t size_class = word * 64 + std::countr_zero(used_[word]);
      if (Block* block = pop(size_class * kBlockQuantum)) return block;
      used_[word] &= used_[word] - 1;
    }
  }
  return nullptr;
}

void BlockPool::insert(Block* block) {
  block->state = Block::State::kFree;
  block->link = nullptr;
  block->freed_at = 0;
  if (kind_ == PoolKind::kLarge && allocator_settings().gc_threshold > 0)
      [[unlikely]] {
    block->freed_at = ticks();
    block->release_at = block->stream->tail();
  }
  tree_.insert(std::move(block->node));
}

void BlockPool::extract(Block* block) {
  block->node = tree_.extract(block);
  block->release_marked = false;
}

Block* BlockPool::best_fit(size_t size, SpareBlocks& spares) {
  const auto found = tree_.lower_bound(size);
  if (found == tree_.end()) return nullptr;
  Block* block = *found;
  if (kind_ == PoolKind::kLarge && !may_serve(block, size)) [[unlikely]]
    return nullptr;
  block->node = tree_.extract(found);
  block->release_marked = false;
  split(block, size, spares);
  return block;
}

void BlockPool::split(Block* block, size_t size, SpareBlocks& spares) {
  if (!part_of_.rules.splits ||
      !worth_splitting(kind_, size, block->size - size))
    return;
  Block* rest = spares.take();
  rest->ptr = static_cast<char*>(block->ptr) + size;
  rest->size = block->size - size;
  rest->device = block->device;
  rest->stream = block->stream;
  rest->pool = this;
  rest->before = block;
  rest->after = block->after;
  if (rest->after) rest->after->before = rest;
  block->after = rest;
  block->size = size;
  insert(rest);
}

void BlockPool::merge(Block* block, SpareBlocks& spares) {
  if (Block* after = block->after;
      after && after->state == Block::State::kFree) {
    extract(after);
    block->size += after->size;
    block->after = after->after;
    if (block->after) block->after->before = block;
    spares.give(after);
  }
  if (Block* before = block->before;
      before && before->state == Block::State::kFree) {
    extract(before);
    before->size += block->size;
    before->after = block->after;
    if (before->after) before->after->before = before;
    spares.give(block);
    block = before;
  }
  insert(block);
}

void BlockPool::flush(SpareBlocks& spares) {
  if (!quick_) return;
  while (Block* block = quick_->pop_any()) merge(block, spares);
}

}  // namespace npu
