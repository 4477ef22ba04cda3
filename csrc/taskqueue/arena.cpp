#include "csrc/taskqueue/arena.h"

#include <stdlib.h>

#include <bit>
#include <new>
#include <stdexcept>
#include <string>

namespace npu {
namespace {

constexpr int kTagShift = 48;
constexpr uint64_t kAddress = (uint64_t{1} << kTagShift) - 1;

uint64_t retag(uint64_t old_head, uint64_t address) {
  return address | ((old_head >> kTagShift) + 1) << kTagShift;
}

}  // namespace

Arena::~Arena() {
  for (auto& head : free_) {
    uint64_t at = head.load(std::memory_order_acquire) & kAddress;
    while (at) {
      Chunk* chunk = reinterpret_cast<Chunk*>(at);
      at = chunk->next.load(std::memory_order_relaxed) & kAddress;
      free(chunk);
    }
  }
}

uint64_t* Arena::take(uint32_t n_words) {
  const int size_class = std::bit_width(n_words < 2 ? 1u : n_words - 1);
  std::atomic<uint64_t>& head = free_[size_class];
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

void Arena::give(uint64_t* words) {
  Chunk* chunk = reinterpret_cast<Chunk*>(words) - 1;
  std::atomic<uint64_t>& head = free_[chunk->size_class];
  uint64_t seen = head.load(std::memory_order_relaxed);
  do {
    chunk->next.store(seen & kAddress, std::memory_order_relaxed);
    // Release: whoever takes the chunk sees `next`, and its use comes after
    // ours.
  } while (!head.compare_exchange_weak(
      seen, retag(seen, reinterpret_cast<uint64_t>(chunk)),
      std::memory_order_release, std::memory_order_relaxed));
}

}  // namespace npu
