#include <thread>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

TEST(Reuse, RoundsSizesTo512AndAlignsAddresses) {
  auto memory = make_allocator();

  Block* block = take(memory, 513, first_stream());
  Block* exact = take(memory, 512, first_stream());

  EXPECT_EQ(block->size, 1024);
  EXPECT_EQ(block->requested, 513);
  EXPECT_EQ(block->device, 0);
  EXPECT_TRUE(block->stream == &first_stream());
  EXPECT_EQ(exact->size, 512);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block->ptr) % 512, 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(exact->ptr) % 512, 0);
}

// The rest of a block that was split has the same device and stream.
TEST(Reuse, GivesTheRestOfABlockAllThatTheBlockHad) {
  setenv("NPU_DISPATCH_MEMORY", std::to_string(kTotal).c_str(), 1);
  CachingAllocator memory(1);
  Block* first = take(memory, 4096, first_stream());
  Block* rest = take(memory, 4096, first_stream());
  EXPECT_EQ(rest->ptr, static_cast<char*>(first->ptr) + 4096);
  for (const Block* block : {first, rest}) {
    EXPECT_EQ(block->device, 1);
    EXPECT_TRUE(block->stream == &first_stream());
  }
}

TEST(Reuse, GivesAFreedBlockToTheSameStreamAtOnce) {
  for (size_t bytes : {512ul, 1000ul, 1 * kMiB, 5 * kMiB, 30 * kMiB}) {
    auto memory = make_allocator();
    Block* block = take(memory, bytes, first_stream());
    void* address = block->ptr;

    memory.free(block);

    EXPECT_TRUE(take(memory, bytes, first_stream())->ptr == address);
  }
}

TEST(Reuse, DoesNotGiveAFreedBlockToAnotherStream) {
  auto memory = make_allocator();
  Block* block = take(memory, 4096, first_stream());
  void* address = block->ptr;
  memory.free(block);

  Block* other = take(memory, 4096, second_stream());

  EXPECT_TRUE(other->ptr != address);
  EXPECT_EQ(memory.reserved(), 4 * kMiB);
}

TEST(Reuse, SizesSegmentsByTheRequest) {
  struct Case {
    size_t bytes, segment;
  };
  for (Case c : {Case{1, 2 * kMiB}, Case{kMiB, 2 * kMiB},
                 Case{kMiB + 1, 20 * kMiB}, Case{10 * kMiB - 512, 20 * kMiB},
                 Case{10 * kMiB, 10 * kMiB}, Case{11 * kMiB, 12 * kMiB}}) {
    auto memory = make_allocator();

    take(memory, c.bytes, first_stream());

    EXPECT_EQ(memory.reserved(), c.segment);
  }
}

TEST(Reuse, SplitsALargeBlockOnlyWhenMoreThanOneMiBRemains) {
  auto memory = make_allocator();
  memory.free(take(memory, 12 * kMiB, first_stream()));

  Block* whole = take(memory, 11 * kMiB, first_stream());
  EXPECT_EQ(whole->size, 12 * kMiB);
  memory.free(whole);
  Block* part = take(memory, 11 * kMiB - 512, first_stream());

  EXPECT_EQ(part->size, 11 * kMiB - 512);
  EXPECT_EQ(memory.reserved(), 12 * kMiB);
}

TEST(Reuse, PrefersTheSmallestBlockThatFits) {
  auto memory = make_allocator();
  Block* big = take(memory, 30 * kMiB, first_stream());
  Block* close = take(memory, 14 * kMiB, first_stream());
  void* address = close->ptr;
  memory.free(big);
  memory.free(close);

  EXPECT_TRUE(take(memory, 13 * kMiB, first_stream())->ptr == address);
}

TEST(Reuse, MergesSmallBlocksBeforeTheCacheGrows) {
  auto memory = make_allocator();
  std::vector<Block*> blocks;
  for (size_t used = 0; used < 2 * kMiB; used += 512)
    blocks.push_back(take(memory, 512, first_stream()));
  EXPECT_EQ(memory.reserved(), 2 * kMiB);
  for (Block* block : blocks) memory.free(block);

  Block* merged = take(memory, kMiB, first_stream());

  EXPECT_EQ(merged->size, kMiB);
  EXPECT_EQ(memory.reserved(), 2 * kMiB);
}

TEST(Reuse, FindsABlockInUseByItsFirstByteOnly) {
  auto memory = make_allocator();
  Block* first = take(memory, 4096, first_stream());
  Block* block = take(memory, 4096, first_stream());

  EXPECT_TRUE(memory.find(block->ptr) == block);
  EXPECT_TRUE(memory.find(first->ptr) == first);
  EXPECT_TRUE(memory.find(static_cast<char*>(block->ptr) + 512) == nullptr);
  EXPECT_TRUE(memory.find(nullptr) == nullptr);
  EXPECT_TRUE(memory.find(&memory) == nullptr);
  memory.free(block);
  EXPECT_TRUE(memory.find(block->ptr) == nullptr);
}

TEST(Reuse, ThreadsNeverShareABlock) {
  auto memory = make_allocator();
  constexpr int kThreads = 3, kRounds = 4000;
  std::vector<std::jthread> threads;
  for (int id = 0; id < kThreads; ++id) {
    threads.emplace_back([&memory, id] {
      Block* held[8] = {};
      for (int i = 0; i < kRounds; ++i) {
        Block*& slot = held[(i * 5 + id) % 8];
        if (slot) {
          EXPECT_EQ(*static_cast<int*>(slot->ptr), id);
          memory.free(slot);
        }
        slot = take(memory, 512u << (i + id) % 5, first_stream());
        *static_cast<int*>(slot->ptr) = id;
      }
      for (Block* block : held)
        if (block) memory.free(block);
    });
  }
  threads.clear();

  EXPECT_EQ(memory.allocated(), 0);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

}  // namespace
}  // namespace npu
