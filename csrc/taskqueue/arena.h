// Where the arguments of long tasks go: recycled chunks of memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace npu {

// A lock-free stack of free chunks per power of two. Any thread takes, any
// thread gives back. Memory comes from malloc when a class is empty and is kept
// as long as the arena, so the steady state allocates nothing.
class Arena {
 public:
  Arena() = default;
  Arena(const Arena&) = delete;
  ~Arena();

  // At least `n_words` words, uninitialised, aligned to 16 bytes. Throws a
  // runtime_error, with nothing changed, where there is no memory.
  uint64_t* take(uint32_t n_words);
  void give(uint64_t* words);

 private:
  static constexpr int kClasses = 32;

  // Sits in front of the words it describes. `next` is atomic because take()
  // may read it from a chunk that another thread has just taken; the tag makes
  // it discard what it read.
  struct alignas(16) Chunk {
    std::atomic<uint64_t> next;
    uint64_t size_class;
  };

  // Head of a stack: a chunk's address (48 bits) and a tag that counts pushes
  // and pops, so that a chunk which left and came back is noticed (ABA).
  std::atomic<uint64_t> free_[kClasses] = {};
};

}  // namespace npu
