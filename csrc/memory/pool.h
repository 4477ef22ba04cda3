// Which free block serves a request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "csrc/memory/block.h"

namespace npu {

inline constexpr size_t kBlockQuantum = 512;
inline constexpr size_t kSmallBlock = size_t{1} << 20;  // largest small block

enum class PoolKind : uint8_t { kSmall, kLarge };

inline PoolKind pool_kind(size_t size) {
  return size <= kSmallBlock ? PoolKind::kSmall : PoolKind::kLarge;
}

// Bytes to ask of the driver when no free block serves `size`.
size_t segment_size(size_t size);

// Free small blocks by exact size, last in first out. They wait here unmerged
// for the next request of their size.
class QuickLists {
 public:
  void push(Block* block) {
    const size_t size_class = block->size / kBlockQuantum;
    block->state = Block::State::kQuick;
    block->link = heads_[size_class];
    heads_[size_class] = block;
    // Never cleared by pop(): a stale bit costs one look in pop_any().
    used_[size_class / 64] |= uint64_t{1} << size_class % 64;
  }
  Block* pop(size_t size) {
    Block*& head = heads_[size / kBlockQuantum];
    Block* block = head;
    if (block) head = block->link;
    return block;
  }
  // Any block, or null when all lists are empty.
  Block* pop_any();

 private:
  static constexpr size_t kClasses = kSmallBlock / kBlockQuantum + 1;
  std::array<Block*, kClasses> heads_{};
  std::array<uint64_t, (kClasses + 63) / 64> used_{};
};

// The free blocks of one stream and one kind. Guarded by the allocator's lock;
// allocates nothing.
class BlockPool {
 public:
  // `quick`: null for large blocks.
  // `mempool`: of which private pool (0: of none); `splits`: as a rule.
  BlockPool(PoolKind kind, QuickLists* quick, uint64_t mempool, bool splits)
      : kind_(kind), quick_(quick), mempool_(mempool), splits_(splits) {}
  BlockPool(const BlockPool&) = delete;

  PoolKind kind() const { return kind_; }
  uint64_t mempool() const { return mempool_; }

  // Whether free segments stay here, for graphs whose tasks use them.
  bool kept() const { return kept_; }
  void keep(bool kept) { kept_ = kept; }

  // A block of at least `size` bytes, or null: one that had just this size,
  // else, with all free neighbours merged, the smallest that fits, split when
  // the rest is worth keeping. Takes at most one spare.
  //
  // A miss empties the quick lists, so that sizes which vary cost time, as
  // without the lists, and not memory: they keep a cache of steady sizes only.
  Block* take(size_t size, SpareBlocks& spares) {
    if (quick_) {
      if (Block* block = quick_->pop(size)) [[likely]]
        return block;
      flush(spares);
    }
    return best_fit(size, spares);
  }

  void give(Block* block, SpareBlocks& spares) {
    if (quick_) {
      quick_->push(block);
    } else {
      merge(block, spares);
    }
  }

  // Puts the quick lists' blocks into the tree, where they merge.
  void flush(SpareBlocks& spares);

  // Shortens a block that is not free; its rest becomes free.
  void split(Block* block, size_t size, SpareBlocks& spares);

  // Takes a block that is in the tree out of it.
  void extract(Block* block);

 private:
  Block* best_fit(size_t size, SpareBlocks& spares);
  void merge(Block* block, SpareBlocks& spares);
  void insert(Block* block);

  const PoolKind kind_;
  QuickLists* const quick_;
  bool kept_ = false;
  const uint64_t mempool_;
  const bool splits_;
  FreeTree tree_;
};

// A graph pool whose graphs are gone. Its memory is like any other, but what is
// still in use goes back to it; the next capture on the stream takes it over.
inline constexpr uint64_t kAbandonedPool = ~uint64_t{0};

// Both pools of a stream, shared or within a private pool of that number. Made
// at its first allocation, never destroyed before
// the allocator; `next` never changes once it is in the allocator's list.
struct StreamPools {
  explicit StreamPools(Stream& s, uint64_t mempool = 0, bool splits = true)
      : stream(&s),
        mempool(mempool),
        small(PoolKind::kSmall, &quick, mempool, splits),
        large(PoolKind::kLarge, nullptr, mempool, splits) {}

  Stream* const stream;
  const uint64_t mempool;
  StreamPools* next = nullptr;
  uint64_t graph_pool = 0;  // the private pool this is a part of; 0: of none
  bool selected = true;     // serves the stream's allocations
  QuickLists quick;
  BlockPool small;
  BlockPool large;

  BlockPool& of(size_t size) {
    return pool_kind(size) == PoolKind::kSmall ? small : large;
  }
};

}  // namespace npu
