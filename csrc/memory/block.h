// What the allocator knows about a piece of device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

#include "csrc/memory/pending.h"

namespace npu {

class BlockPool;
class Stream;
struct Block;

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

}  // namespace npu
