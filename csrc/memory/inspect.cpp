// What the allocator reports: statistics, a snapshot, and why there is no
// memory.
#include <stdio.h>

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

void add(SegmentInfo& segment, BlockInfo block) {
  if (block.state == BlockInfo::State::kInactive) {
    block.requested = 0;
    if (!segment.blocks.empty() && segment.blocks.back().state == block.state) {
      segment.blocks.back().size += block.size;
      return;
    }
  } else {
    segment.active += block.size;
    segment.requested += block.requested;
    if (block.state == BlockInfo::State::kActive)
      segment.allocated += block.size;
  }
  segment.blocks.push_back(block);
}

std::string readable(uint64_t bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  double amount = double(bytes);
  while (amount >= 1024 && unit < 4) {
    amount /= 1024;
    ++unit;
  }
  char text[32];
  snprintf(text, sizeof text, unit ? "%.2f %s" : "%.0f %s", amount,
           units[unit]);
  return text;
}

}  // namespace

std::string OutOfMemory::message() const {
  std::string text = "NPU out of memory. Tried to allocate " + readable(asked) +
                     ". NPU " + std::to_string(device) +
                     " has a total capacity of " + readable(total) +
                     " of which " + readable(free) + " is free. ";
  if (limit < total)
    text += "This process may use at most " + readable(limit) + ". ";
  return text + "Of the memory this process holds, " + readable(allocated) +
         " is allocated by PyTorch, and " + readable(reserved - allocated) +
         " is reserved by PyTorch but unallocated. If reserved but unallocated "
         "memory is large, it is fragmented: try smaller or fewer sizes, or "
         "the settings in PYTORCH_NPU_ALLOC_CONF.";
}

void CachingAllocator::sample_split() {
  int64_t blocks[MemoryStats::kPools] = {}, bytes[MemoryStats::kPools] = {};
  for (auto& [address, segment] : segments_) {
    int64_t found = 0, free_bytes = 0;
    bool after_free = false;
    for (Block* block = segment.first; block; block = block->after) {
      const bool free = inactive(block);
      if (free && !after_free) ++found;
      if (free) free_bytes += int64_t(block->size);
      after_free = free;
    }
    if (free_bytes == int64_t(segment.size)) continue;  // all of it is free
    for (int pool : {int(segment.first->pool->kind()), MemoryStats::kAll}) {
      blocks[pool] += found;
      bytes[pool] += free_bytes;
    }
  }
  for (int pool = 0; pool < MemoryStats::kPools; ++pool) {
    stats_.sample(MemoryStats::kSplitBlocks, pool, blocks[pool]);
    stats_.sample(MemoryStats::kSplitBytes, pool, bytes[pool]);
  }
}

std::map<std::string, int64_t> CachingAllocator::stats() {
  Lock lock(lock_);
  poll_pending(pending_.count);
  sample_split();
  const MemoryStats copy = stats_;
  lock.unlock();
  return copy.flat();
}

CachingAllocator::Totals CachingAllocator::totals() {
  std::lock_guard lock(lock_);
  const Stat& reserved = stats_.reserved_bytes();
  return {uint64_t(stats_.allocated_bytes()),
          uint64_t(stats_.peak_allocated_bytes()), uint64_t(reserved.current),
          uint64_t(reserved.peak)};
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
  // Blocks are copied under the lock, where nothing is allocated, each with its
  // segment. They are put together without it.
  struct Copy {
    SegmentInfo segment;
    BlockInfo block;
  };
  std::vector<Copy> copies;
  Lock lock(lock_);
  const auto count = [&] {
    size_t n = 0;
    for (auto& [address, segment] : segments_)
      for (Block* block = segment.first; block; block = block->after) ++n;
    return n;
  };
  make_room(copies, count, lock);
  for (auto& [address, segment] : segments_) {
    const BlockPool& pool = *segment.first->pool;
    const SegmentInfo info{device_,
                           address,
                           segment.first->stream->id(),
                           pool.part_of().id,
                           pool.kind() == PoolKind::kSmall,
                           segment.size};
    for (Block* block = segment.first; block; block = block->after)
      copies.push_back({info,
                        {reinterpret_cast<uintptr_t>(block->ptr), block->size,
                         block->requested, public_state(block)}});
  }
  lock.unlock();

  std::vector<SegmentInfo> segments;
  for (const auto& [segment, block] : copies) {
    if (segments.empty() || segments.back().address != segment.address)
      segments.push_back(segment);
    add(segments.back(), block);
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
