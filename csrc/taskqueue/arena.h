// Where the arguments of long tasks go: recycled chunks of memory.
#pragma once

#include <stdlib.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "csrc/taskqueue/system.h"

namespace npu {

// A lock-free stack of free chunks per power of two. Any thread takes, any
// thread gives back. Memory comes from malloc when a class is empty and is kept
// as long as the arena, so the steady state allocates nothing.
template <typename System, int kClasses = 32, bool kTagged = true>
class BasicArena {
 public:
  BasicArena() = default;
  BasicArena(const BasicArena&) = delete;
  ~BasicArena();

  // At least `n_words` words, uninitialised, aligned to 16 bytes. Throws a
  // runtime_error, with nothing changed, where there is no memory.
  [[gnu::noinline]] uint64_t* take(uint32_t n_words);
  void give(uint64_t* words);

 private:
  using Word = typename System::template Atomic<uint64_t>;

  // Sits in front of the words it describes. `next` is atomic because take()
  // may read it from a chunk that another thread has just taken; the tag makes
  // it discard what it read.
  struct alignas(16) Chunk {
    Word next;
    uint64_t size_class;
  };

  static constexpr int kTagShift = 48;
  static constexpr uint64_t kAddress = (uint64_t{1} << kTagShift) - 1;

  static uint64_t retag(uint64_t old_head, uint64_t address) {
    return address | ((old_head >> kTagShift) + kTagged) << kTagShift;
  }

  // Head of a stack: a chunk's address (48 bits) and a tag that counts pushes
  // and pops, so that a chunk which left and came back is noticed (ABA).
  Word free_[kClasses] = {};
};

template <typename System, int kClasses, bool kTagged>
BasicArena<System, kClasses, kTagged>::~BasicArena() {
  for (auto& head : free_) {
    uint64_t at = head.load(std::memory_order_acquire) & kAddress;
    while (at) {
      Chunk* chunk = reinterpret_cast<Chunk*>(at);
      at = chunk->next.load(std::memory_order_relaxed) & kAddress;
      free(chunk);
    }
  }
}

template <typename System, int kClasses, bool kTagged>
uint64_t* BasicArena<System, kClasses, kTagged>::take(uint32_t n_words) {
  const int size_class = std::bit_width(n_words < 2 ? 1u : n_words - 1);
  Word& head = free_[size_class];
  // Acquire: pairs with the release in give(), so that `next` is the one
  // written by the push of this very head.
  uint64_t seen = head.load(std::memory_order_acquire);
  while (Chunk* chunk = reinterpret_cast<Chunk*>(seen & kAddress)) {
    const uint64_t next = chunk->next.load(std::memory_order_relaxed);
    // Acquire: the chunk's last user is done with it before we use it. The new
    // head keeps the pushes below it visible, because the exchange continues
    // their release sequence.
    if (head.compare_exchange_weak(seen, retag(seen, next & kAddress),
                                   std::memory_order_acquire,
                                   std::memory_order_acquire))
      return reinterpret_cast<uint64_t*>(chunk + 1);
  }
  void* memory =
      aligned_alloc(16, sizeof(Chunk) + (sizeof(uint64_t) << size_class));
  if (!memory)
    throw std::runtime_error(
        "npu: no host memory for the " + std::to_string(n_words) +
        " words of a task's arguments; nothing was queued, and the stream can "
        "be used as before once there is memory");
  Chunk* chunk = new (memory) Chunk{{0}, uint64_t(size_class)};
  return reinterpret_cast<uint64_t*>(chunk + 1);
}

template <typename System, int kClasses, bool kTagged>
void BasicArena<System, kClasses, kTagged>::give(uint64_t* words) {
  Chunk* chunk = reinterpret_cast<Chunk*>(words) - 1;
  Word& head = free_[chunk->size_class];
  uint64_t seen = head.load(std::memory_order_relaxed);
  do {
    chunk->next.store(seen & kAddress, std::memory_order_relaxed);
    // Release: whoever takes the chunk sees `next`, and its use comes after
    // ours.
  } while (!head.compare_exchange_weak(
      seen, retag(seen, reinterpret_cast<uint64_t>(chunk)),
      std::memory_order_release, std::memory_order_relaxed));
}

using Arena = BasicArena<System>;

}  // namespace npu
