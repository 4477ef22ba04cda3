#include "csrc/taskqueue/arena.h"

#include <thread>
#include <vector>

#include "tests/cpp/check.h"

namespace npu {
namespace {

TEST(Arena, GivesAlignedMemoryOfEverySize) {
  Arena arena;
  for (uint32_t n : {1u, 2u, 3u, 4u, 5u, 36u, 64u, 65u, 4096u, 65'535u}) {
    uint64_t* words = arena.take(n);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(words) % 16, 0);
    for (uint32_t i = 0; i < n; ++i) words[i] = i;  // ASan checks the size
    arena.give(words);
  }
}

TEST(Arena, ReusesAChunkOfTheSameClass) {
  Arena arena;
  uint64_t* first = arena.take(40);
  arena.give(first);

  EXPECT_TRUE(arena.take(64) == first);
  uint64_t* second = arena.take(64);
  EXPECT_TRUE(second != first);
  arena.give(first);
  arena.give(second);
}

TEST(Arena, ReturnsTheLastGivenChunkFirst) {
  Arena arena;
  uint64_t* a = arena.take(10);
  uint64_t* b = arena.take(10);
  arena.give(a);
  arena.give(b);

  EXPECT_TRUE(arena.take(10) == b);
  EXPECT_TRUE(arena.take(10) == a);
  arena.give(a);
  arena.give(b);
}

TEST(Arena, NeverGivesAChunkToTwoThreads) {
  constexpr int kThreads = 4, kRounds = 20'000;
  Arena arena;
  std::atomic<int> mixed{0};
  std::vector<std::thread> threads;

  for (int id = 0; id < kThreads; ++id)
    threads.emplace_back([&arena, &mixed, id] {
      for (int i = 0; i < kRounds; ++i) {
        uint64_t* a = arena.take(40);
        uint64_t* b = arena.take(40);
        a[0] = b[0] = uint64_t(id);  // a race for TSan if shared
        if (a == b || a[0] != uint64_t(id)) mixed.fetch_add(1);
        arena.give(a);
        arena.give(b);
      }
    });
  for (auto& thread : threads) thread.join();

  EXPECT_EQ(mixed.load(), 0);
}

}  // namespace
}  // namespace npu
