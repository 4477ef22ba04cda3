// What a piece of device memory knows about itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <set>

namespace npu {

class BlockPool;
class Stream;
struct Block;

// A stream that may still touch a block after its free: from the free on,
// until it has retired `number` tasks.
struct BlockUse {
  Stream* stream;
  uint64_t number;
  BlockUse* next;
};

struct SmallestFirst {
  using is_transparent = void;
  inline bool operator()(const Block* a, const Block* b) const;
  inline bool operator()(const Block* a, size_t size) const;
};
using FreeTree = std::set<Block*, SmallestFirst>;

// A contiguous part of a segment. Lives as long as the allocator and is used
// again for other parts.
struct alignas(64) Block {
  enum class State : uint8_t {
    kUnused,   // describes no memory
    kActive,   // somebody's
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
  BlockPool* pool = nullptr;
  Block* link = nullptr;  // next in whichever list the state says
  BlockUse* uses = nullptr;

  // Neighbours in the segment. The lower part of a split keeps its Block, so a
  // segment's first Block stays the same.
  Block* before = nullptr;
  Block* after = nullptr;
  // Of a whole free segment that is to go back to the driver: its stream's
  // tail when that was decided. Any reuse clears the mark.
  uint64_t release_at = 0;
  bool release_marked = false;
  // Of a free block where garbage is collected: ticks() at its free, and then
  // release_at is the stream's tail at that time. Else 0.
  uint64_t freed_at = 0;
  // The tree's node while this is not in the tree, so that entering it never
  // allocates.
  FreeTree::node_type node;

  bool whole_segment() const { return !before && !after; }
};

inline bool SmallestFirst::operator()(const Block* a, const Block* b) const {
  return a->size != b->size ? a->size < b->size : a->ptr < b->ptr;
}
inline bool SmallestFirst::operator()(const Block* a, size_t size) const {
  return a->size < size;
}

// Blocks that describe nothing. Guarded by the allocator's lock, except make().
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

  // Allocates, and so is called without the lock.
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
