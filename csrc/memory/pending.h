// Who may still touch a block after its free, and the blocks that wait for it.
// Guarded by the allocator's lock.
#pragma once

#include <cstdint>

namespace npu {

// A stream other than the block's own that may touch it after its free, until
// it has retired `number` tasks. The number is set at the free.
template <typename Stream>
struct BasicBlockUse {
  Stream* stream;
  uint64_t number;
  BasicBlockUse* next;
};

// The uses that no block has, and the one way to take them from a block and to
// give them to it.
template <typename Block, typename Use>
class BasicSpareUses {
 public:
  BasicSpareUses() = default;
  BasicSpareUses(const BasicSpareUses&) = delete;
  ~BasicSpareUses() {
    while (Use* const use = first_) {
      first_ = use->next;
      delete use;
    }
  }

  void give(Use* use) {
    use->next = first_;
    first_ = use;
  }
  // False: there is none to note the stream in.
  bool add(Block& block, decltype(Use::stream) stream) {
    Use* const use = first_;
    if (!use) return false;
    first_ = use->next;
    *use = {stream, 0, block.uses};
    block.uses = use;
    return true;
  }
  // Takes those from the block that are `over(use)`.
  template <typename Over>
  void drop(Block& block, Over over) {
    for (Use** at = &block.uses; *at;) {
      Use* const use = *at;
      if (over(*use)) {
        *at = use->next;
        give(use);
      } else {
        at = &use->next;
      }
    }
  }

  // The owner frees the block: what its streams have been given by now may
  // still touch it.
  static void note_free(Block& block) {
    for (Use* use = block.uses; use; use = use->next)
      use->number = use->stream->tail();
  }
  // Whether that is over.
  bool have_ended(Block& block) {
    // Acquire, in reached(): what the stream did with the block comes before
    // what its next owner does, whom the lock tells.
    drop(block, [](const Use& use) {
      return use.stream->retired().reached(use.number);
    });
    return !block.uses;
  }

 private:
  Use* first_ = nullptr;
};

// Blocks that their owner has freed and that other streams may still touch, the
// oldest first.
template <typename Block>
struct BasicPendingBlocks {
  Block* first = nullptr;
  Block* last = nullptr;
  int count = 0;

  void push(Block* block) {
    block->state = Block::State::kPending;
    block->link = nullptr;
    (first ? last->link : first) = block;
    last = block;
    ++count;
  }
  Block* pop() {
    Block* const block = first;
    first = block->link;
    --count;
    return block;
  }
  // Looks at the oldest `checks`, and puts those that are still in use at the
  // end, so that a slow stream does not hold up the others' blocks. The others
  // are given to `give(block)`.
  template <typename Uses, typename Give>
  void poll(int checks, Uses& uses, Give give) {
    if (checks > count) checks = count;
    while (checks--) {
      Block* const block = pop();
      if (uses.have_ended(*block)) {
        give(block);
      } else {
        push(block);
      }
    }
  }
};

}  // namespace npu
