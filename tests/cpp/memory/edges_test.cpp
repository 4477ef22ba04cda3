// Sizes at which one case ends and the next begins, and what a refusal leaves
// behind.
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "csrc/memory/settings.h"
#include "tests/cpp/check.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

// While one exists, the process has only `room` bytes of address space left.
struct LittleRoom {
  explicit LittleRoom(size_t room) {
    getrlimit(RLIMIT_AS, &before);
    size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    rlimit less = before;
    less.rlim_cur = pages * size_t(sysconf(_SC_PAGESIZE)) + room;
    setrlimit(RLIMIT_AS, &less);
  }
  ~LittleRoom() { setrlimit(RLIMIT_AS, &before); }
  rlimit before;
};

TEST(Edges, WhatTheDriverRefusedIsNotCountedAsHeld) {
  auto memory = make_allocator();
  memory.free(take(memory, 512, first_stream()));
  {
    const LittleRoom room(50 * kMiB);
    EXPECT_TRUE(!take(memory, 100 * kMiB, first_stream()));
  }
  EXPECT_EQ(memory.stats()["num_ooms"], 1);
  EXPECT_TRUE(take(memory, 250 * kMiB, first_stream()) != nullptr);
}

TEST(Edges, MemoryIsOfAStreamAndNotOfItsNumber) {
  Stream twin(0, first_stream().id(), 0, StreamMode::kQueued);
  auto memory = make_allocator();
  Block* block = take(memory, 512, first_stream());
  void* address = block->ptr;
  memory.free(block);

  EXPECT_TRUE(take(memory, 512, twin)->ptr != address);
  EXPECT_TRUE(take(memory, 512, first_stream())->ptr == address);
}

// Two threads that use a stream first at the same time get the same pools:
// memory that either gives back serves the other.
TEST(Edges, AStreamHasOnePoolWhoeverAsksFirst) {
  constexpr int kRounds = 400;
  CachingAllocator* shared = nullptr;
  std::atomic<int> begun{0}, ended{0};
  Block* theirs = nullptr;
  // Release and acquire: what either thread wrote before is seen by the other.
  std::jthread other([&] {
    for (int round = 1; round <= kRounds; ++round) {
      while (begun.load(std::memory_order_acquire) < round) {
      }
      theirs = take(*shared, 12 * kMiB, first_stream());
      ended.store(round, std::memory_order_release);
    }
  });
  int grown = 0;
  for (int round = 1; round <= kRounds; ++round) {
    auto memory = make_allocator();
    shared = &memory;
    begun.store(round, std::memory_order_release);
    Block* ours = take(memory, 12 * kMiB, first_stream());
    while (ended.load(std::memory_order_acquire) < round)
      std::this_thread::yield();
    memory.free(ours);
    memory.free(theirs);
    const uint64_t reserved = memory.reserved();
    for (uint64_t taken = 0; taken < reserved; taken += 12 * kMiB)
      take(memory, 12 * kMiB, first_stream());
    grown += memory.reserved() != reserved;
  }
  EXPECT_EQ(grown, 0);
}

TEST(Edges, ABlockOfExactlyTheMostThatIsSplitIsOversize) {
  set_allocator_settings("max_split_size_mb:40");
  auto memory = make_allocator();
  memory.free(take(memory, 38 * kMiB, first_stream()));
  auto s = memory.stats();
  EXPECT_EQ(s["oversize_allocations.allocated"], 0);
  EXPECT_EQ(s["oversize_segments.allocated"], 0);

  Block* block = take(memory, 40 * kMiB, first_stream());
  s = memory.stats();
  EXPECT_EQ(s["oversize_allocations.current"], 1);
  EXPECT_EQ(s["oversize_segments.current"], 1);
  memory.free(block);
  EXPECT_EQ(memory.stats()["oversize_allocations.current"], 0);
  memory.empty_cache();
  EXPECT_EQ(memory.stats()["oversize_segments.current"], 0);

  // The block serves, whole, a request that is as large, and no smaller one.
  block = take(memory, 50 * kMiB, first_stream());
  void* address = block->ptr;
  memory.free(block);
  Block* whole = take(memory, 40 * kMiB, first_stream());
  EXPECT_TRUE(whole->ptr == address && whole->size == 50 * kMiB);
  memory.free(whole);
  EXPECT_TRUE(take(memory, 40 * kMiB - 512, first_stream())->ptr != address);
  set_allocator_settings("");
}

}  // namespace
}  // namespace npu
