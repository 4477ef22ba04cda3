// What the allocator reports about its memory.
#include "csrc/memory/caching_allocator.h"
#include "csrc/taskqueue/stream.h"

namespace npu {
namespace {

bool inactive(const Block* block) {
  return block->state == Block::State::kQuick ||
         block->state == Block::State::kFree;
}

BlockInfo::State public_state(const Block* block) {
  if (inactive(block)) return BlockInfo::State::kInactive;
  return block->state == Block::State::kPending ? BlockInfo::State::kPendingFree
                                                : BlockInfo::State::kActive;
}

void add(SegmentInfo& segment, const Block* block) {
  const BlockInfo::State state = public_state(block);
  BlockInfo info{reinterpret_cast<uintptr_t>(block->ptr), block->size,
                 block->requested, state};
  if (state == BlockInfo::State::kInactive) {
    info.requested = 0;
    if (!segment.blocks.empty() && segment.blocks.back().state == state) {
      segment.blocks.back().size += info.size;
      return;
    }
  } else {
    segment.active += info.size;
    segment.requested += info.requested;
    if (state == BlockInfo::State::kActive) segment.allocated += info.size;
  }
  segment.blocks.push_back(info);
}

}  // namespace

Block* CachingAllocator::find(const void* ptr) {
  const auto address = reinterpret_cast<uintptr_t>(ptr);
  std::lock_guard lock(lock_);
  auto at = segments_.upper_bound(address);
  if (at == segments_.begin()) return nullptr;
  --at;
  for (Block* block = at->second.first; block; block = block->after)
    if (block->ptr == ptr)
      return block->state == Block::State::kActive ? block : nullptr;
  return nullptr;
}

CachingAllocator::Found CachingAllocator::report_free(const void* address) {
  std::lock_guard lock(lock_);
  const auto segment = segment_of(address);
  if (segment == segments_.end()) return {};
  Block* block = segment->second.first;
  while (static_cast<const char*>(address) >=
         static_cast<char*>(block->ptr) + block->size)
    block = block->after;
  const bool in_use = block->state == Block::State::kActive;
  block->watched = in_use;
  return {true, in_use, block->pool->graph_pool()};
}

MemoryStats::Split CachingAllocator::split() const {
  MemoryStats::Split split;
  for (auto& [address, segment] : segments_) {
    const int kind = int(segment.first->pool->kind());
    int64_t blocks = 0, bytes = 0;
    bool after_free = false;
    for (Block* block = segment.first; block; block = block->after) {
      const bool free = inactive(block);
      if (free && !after_free) ++blocks;
      if (free) bytes += int64_t(block->size);
      after_free = free;
    }
    if (bytes == int64_t(segment.size)) continue;  // all of it is free
    split.blocks[kind] += blocks;
    split.bytes[kind] += bytes;
  }
  return split;
}

std::map<std::string, int64_t> CachingAllocator::stats() {
  Lock lock(lock_);
  poll_pending(pending_.count);
  stats_.sample(split());
  const MemoryStats copy = stats_;
  lock.unlock();
  return copy.flat();
}

uint64_t CachingAllocator::allocated() {
  std::lock_guard lock(lock_);
  return uint64_t(stats_.allocated_bytes());
}

uint64_t CachingAllocator::max_allocated() {
  std::lock_guard lock(lock_);
  return uint64_t(stats_.peak_allocated_bytes());
}

uint64_t CachingAllocator::reserved() {
  std::lock_guard lock(lock_);
  return uint64_t(stats_.reserved_bytes().current);
}

uint64_t CachingAllocator::max_reserved() {
  std::lock_guard lock(lock_);
  return uint64_t(stats_.reserved_bytes().peak);
}

void CachingAllocator::reset_peak_stats() {
  std::lock_guard lock(lock_);
  stats_.reset_peak();
}

void CachingAllocator::reset_accumulated_stats() {
  std::lock_guard lock(lock_);
  stats_.reset_accumulated();
}

std::vector<SegmentInfo> CachingAllocator::snapshot() {
  // Blocks are copied under the lock and described without it.
  struct Copy {
    uintptr_t segment;
    size_t segment_bytes;
    int64_t stream;
    uint64_t mempool;
    PoolKind kind;
    void* ptr;
    size_t size, requested;
    Block::State state;
  };
  std::vector<Copy> copies;
  const auto count = [&] {
    size_t n = 0;
    for (auto& [address, segment] : segments_)
      for (Block* block = segment.first; block; block = block->after) ++n;
    return n;
  };
  Lock lock(lock_);
  for (size_t n; copies.capacity() < (n = count());) {
    lock.unlock();
    copies.reserve(n + n / 8);
    lock.lock();
  }
  const auto pool_of = [&](const BlockPool* pool) {
    if (!pool->kept()) return pool->mempool();
    for (StreamPools* at = all_pools_; at; at = at->next)
      if (pool == &at->small || pool == &at->large) return at->graph_pool;
    return pool->mempool();
  };
  for (auto& [address, segment] : segments_) {
    const uint64_t pool = pool_of(segment.first->pool);
    for (Block* block = segment.first; block; block = block->after)
      copies.push_back({address, segment.size, block->stream->id(), pool,
                        block->pool->kind(), block->ptr, block->size,
                        block->requested, block->state});
  }
  lock.unlock();

  std::vector<SegmentInfo> segments;
  for (const Copy& copy : copies) {
    if (segments.empty() || segments.back().address != copy.segment)
      segments.push_back({device_,
                          copy.segment,
                          copy.stream,
                          copy.mempool,
                          copy.kind == PoolKind::kSmall,
                          copy.segment_bytes,
                          0,
                          0,
                          0,
                          {}});
    Block block;
    block.ptr = copy.ptr;
    block.size = copy.size;
    block.requested = copy.requested;
    block.state = copy.state;
    add(segments.back(), &block);
  }
  return segments;
}

void CachingAllocator::set_fraction(double fraction) {
  std::lock_guard lock(lock_);
  fraction_ = fraction;
}

double CachingAllocator::fraction() {
  std::lock_guard lock(lock_);
  return fraction_;
}

MemoryInfo CachingAllocator::info() {
  const uint64_t held = reserved();
  return {total_ > held ? total_ - held : 0, total_};
}

OutOfMemory CachingAllocator::out_of_memory(size_t asked) const {
  const uint64_t held = uint64_t(stats_.reserved_bytes().current);
  return {asked,
          total_,
          total_ > held ? total_ - held : 0,
          limit(),
          uint64_t(stats_.allocated_bytes()),
          held,
          device_};
}

}  // namespace npu
