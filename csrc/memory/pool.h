// Decides which free block serves a request.
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

// Free small blocks by exact size, last in first out. They stay here unmerged
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
  // `quick`: null for large blocks. `mempool`: the private pool that this is a
  // part of, 0: of none; `splits`: whether blocks may be split.
  BlockPool(PoolKind kind, QuickLists* quick, uint64_t mempool, bool splits)
      : kind_(kind),
        quick_(splits ? quick : nullptr),  // whole segments have no exact size
        mempool_(mempool),
        splits_(splits) {}
  BlockPool(const BlockPool&) = delete;

  PoolKind kind() const { return kind_; }
  uint64_t mempool() const { return mempool_; }

  // Whether free segments stay here, because the tasks of graphs use them.
  bool kept() const { return graph_pool_; }
  // The graphs' pool that they stay in; 0: they do not.
  uint64_t graph_pool() const { return graph_pool_; }
  void keep(uint64_t graph_pool) { graph_pool_ = graph_pool; }

  // A block of at least `size` bytes, or null. A quick block of exactly this
  // size comes first; else all free neighbours are merged and the smallest
  // block that fits is taken, split when the rest is worth keeping. Uses at
  // most one spare.
  //
  // A miss empties the quick lists. So a program whose sizes vary loses time,
  // as it would without the lists, but no memory.
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

  // Shortens a block that is in neither the tree nor a list; its rest becomes
  // free.
  void split(Block* block, size_t size, SpareBlocks& spares);

  // Takes a block that is in the tree out of it.
  void extract(Block* block);

 private:
  Block* best_fit(size_t size, SpareBlocks& spares);
  void merge(Block* block, SpareBlocks& spares);
  void insert(Block* block);

  const PoolKind kind_;
  QuickLists* const quick_;
  uint64_t graph_pool_ = 0;
  const uint64_t mempool_;
  const bool splits_;
  FreeTree tree_;
};

// The number of a graph pool whose graphs are gone. Its free memory may go back
// to the driver like any other, and blocks that are still in use come back to
// it when they are freed. The next capture on the stream takes it over.
inline constexpr uint64_t kAbandonedPool = ~uint64_t{0};

// The small and the large pool of a stream, within the private pool `mempool`
// where that is not 0. They are made at the stream's first allocation and live
// as long as the allocator; `next` never changes once they are in its list.
struct StreamPools {
  explicit StreamPools(Stream& s, uint64_t mempool = 0, bool splits = true)
      : stream(&s),
        mempool(mempool),
        small(PoolKind::kSmall, &quick, mempool, splits),
        large(PoolKind::kLarge, nullptr, mempool, splits) {}

  Stream* const stream;
  const uint64_t mempool;
  StreamPools* next = nullptr;
  uint64_t graph_pool = 0;  // the graphs' pool that this is a part of; 0: none
  bool selected = true;     // serves the stream's allocations
  QuickLists quick;
  BlockPool small;
  BlockPool large;

  BlockPool& of(size_t size) {
    return pool_kind(size) == PoolKind::kSmall ? small : large;
  }
};

}  // namespace npu
