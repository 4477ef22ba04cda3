// Blocks, the pieces of device memory, and which free one serves a request.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <set>

#include "csrc/memory/pending.h"

namespace npu {

class BlockPool;
class Stream;
struct Block;
struct StreamPools;

using BlockUse = BasicBlockUse<Stream>;

struct SmallestFirst {
  using is_transparent = void;
  inline bool operator()(const Block* a, const Block* b) const;
  inline bool operator()(const Block* a, size_t size) const;
};
using FreeTree = std::set<Block*, SmallestFirst>;

// Describes a contiguous part of a segment. A Block lives as long as the
// allocator and is used again for other parts.
struct alignas(64) Block {
  enum class State : uint8_t {
    kUnused,   // describes no memory
    kActive,   // handed out to an owner
    kPending,  // freed, while another stream may still touch it
    kQuick,    // free, in a quick list: does not merge
    kFree,     // free, in the tree: merges with its neighbours
  };

  // The owner may read these five from allocate() to free().
  void* ptr = nullptr;
  size_t size = 0;       // bytes, a multiple of 512
  size_t requested = 0;  // bytes asked for
  Stream* stream = nullptr;
  int device = 0;

  // The rest is guarded by the allocator's lock.
  State state = State::kUnused;
  bool watched = false;  // in use, and its free is to be reported (watch.h)
  BlockPool* pool = nullptr;
  Block* link = nullptr;  // next in whichever list the state says
  BlockUse* uses = nullptr;

  // Neighbours in the segment. The lower part of a split keeps its Block, so a
  // segment's first Block stays the same.
  Block* before = nullptr;
  Block* after = nullptr;
  // For a whole free segment that is to go back to the driver: its stream's
  // tail when that was decided. Any reuse clears the mark.
  uint64_t release_at = 0;
  bool release_marked = false;
  // For a free large block while garbage is collected: ticks() at its free;
  // release_at is then the stream's tail at that time. Else 0.
  uint64_t freed_at = 0;
  // The block's node of the tree while it is not in the tree, so that inserting
  // it never allocates.
  FreeTree::node_type node;

  bool whole_segment() const { return !before && !after; }
};

inline bool SmallestFirst::operator()(const Block* a, const Block* b) const {
  return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
}
inline bool SmallestFirst::operator()(const Block* a, size_t size) const {
  return a->size < size;
}

using SpareUses = BasicSpareUses<Block, BlockUse>;
using PendingBlocks = BasicPendingBlocks<Block>;

// The blocks that describe nothing. Guarded by the allocator's lock, except
// make().
class SpareBlocks {
 public:
  struct Chunk {
    static constexpr int kBlocks = 64;
    Block blocks[kBlocks];
    Chunk* next = nullptr;
  };

  SpareBlocks() = default;
  SpareBlocks(const SpareBlocks&) = delete;
  ~SpareBlocks();

  // Allocates host memory, and so is called without the lock.
  static Chunk* make();
  void add(Chunk* chunk);

  int count() const { return count_; }
  Block* take() {
    Block* block = top_;
    top_ = block->link;
    block->link = nullptr;
    --count_;
    return block;
  }
  void give(Block* block) {
    block->state = Block::State::kUnused;
    block->link = top_;
    top_ = block;
    ++count_;
  }

 private:
  Block* top_ = nullptr;
  Chunk* chunks_ = nullptr;
  int count_ = 0;
};

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
  // `quick`: null for large blocks.
  BlockPool(PoolKind kind, QuickLists* quick, const StreamPools& part_of)
      : kind_(kind), quick_(quick), part_of_(part_of) {}
  BlockPool(const BlockPool&) = delete;

  PoolKind kind() const { return kind_; }
  const StreamPools& part_of() const { return part_of_; }

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
  const StreamPools& part_of_;
  FreeTree tree_;
};

struct PoolRules {
  bool use_on_oom =
      false;           // lends what is free before others run out of memory
  bool splits = true;  // a segment may serve several blocks
};

// The small and the large pool of a stream: its ordinary ones, or its part of a
// private pool. They live as long as the allocator, and `next` never changes
// once they are in its list.
struct StreamPools {
  StreamPools(Stream& s, uint64_t id, bool captured, PoolRules rules)
      : stream(&s),
        captured(captured),
        rules(rules),
        id(id),
        selected(id == 0),
        // Whole segments have no exact size.
        small(PoolKind::kSmall, rules.splits ? &quick : nullptr, *this),
        large(PoolKind::kLarge, nullptr, *this) {}
  StreamPools(const StreamPools&) = delete;

  Stream* const stream;
  const bool captured;  // replays write to this memory
  const PoolRules rules;
  uint64_t id;        // of the private pool; 0: of none
  bool held = false;  // the private pool has an owner: free segments stay here
  bool selected;      // serves requests that name no pool
  StreamPools* next = nullptr;
  QuickLists quick;
  BlockPool small;
  BlockPool large;

  // The pool that keeps this memory for its graphs; 0: none.
  uint64_t graph_pool() const { return captured && held ? id : 0; }

  BlockPool& of(size_t size) {
    return pool_kind(size) == PoolKind::kSmall ? small : large;
  }
};

}  // namespace npu
