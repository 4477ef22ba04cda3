// The memory of private pools and of captures: which requests it serves, and
// when it goes back.
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

Block* take_private(CachingAllocator& memory, uint64_t pool, size_t bytes,
                    Stream& stream = first_stream()) {
  OutOfMemory why;
  return memory.allocate(bytes, stream, why, pool);
}

// As for a capture of the first stream.
Block* take_captured(CachingAllocator& memory, uint64_t pool, size_t bytes,
                     Stream& stream = first_stream()) {
  memory.begin_capture(stream, pool);
  Block* const block = take(memory, bytes, stream);
  memory.end_capture(stream);
  return block;
}
uint64_t pool_of(CachingAllocator& memory, const void* address) {
  for (const SegmentInfo& s : memory.snapshot())
    if (s.address == reinterpret_cast<uintptr_t>(address)) return s.pool;
  return 99;
}

// Its small blocks are kept by their size, and never merged before.
TEST(PrivatePool, KeepsItsSegmentsUntilItIsReleased) {
  Memory memory({7});
  Block* const blocks[] = {
      take_private(memory, 7, 12 * kMiB), take_private(memory, 7, 4096),
      take_private(memory, 7, 512), take(memory, 12 * kMiB)};
  for (Block* block : blocks) memory.free(block);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 14 * kMiB);
  memory.release_pool(8, true);  // of nobody
  EXPECT_EQ(memory.reserved(), 14 * kMiB);
  memory.release_pool(7, true);
  EXPECT_EQ(memory.reserved(), 0);
}

TEST(PrivatePool, LeavesWhatIsInUseWhenItIsReleased) {
  Memory memory({7});
  memory.free(take_private(memory, 7, 12 * kMiB));
  Block* used = take_private(memory, 7, 40 * kMiB);
  memory.release_pool(7, true);
  EXPECT_EQ(memory.reserved(), 40 * kMiB);
  memory.free(used);
  EXPECT_EQ(memory.reserved(), 40 * kMiB);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

TEST(PrivatePool, WaitsForItsStreamsBeforeItsMemoryGoes) {
  Memory memory({7});
  Gate gate;
  Block* block = take_private(memory, 7, 12 * kMiB);
  hold(first_stream(), gate);
  memory.free(block);
  std::jthread releasing([&] { memory.release_pool(7, true); });
  while (first_stream().retired().wanted() < first_stream().tail())
    std::this_thread::yield();
  EXPECT_EQ(memory.reserved(), 12 * kMiB);
  gate.open();
  releasing.join();
  EXPECT_EQ(memory.reserved(), 0);
}

// By a rule of the pool its blocks are used whole, and not those of its graphs.
// A MemPool and its graphs, whoever comes first.
TEST(PrivatePool, BelongsToAllItsOwners) {
  for (const bool graph_first : {false, true}) {
    Memory memory;
    if (graph_first) memory.hold_pool(7);
    memory.hold_pool(7, {false, false});
    if (!graph_first) memory.hold_pool(7);
    memory.free(take_private(memory, 7, 40 * kMiB));
    memory.free(take_captured(memory, 7, 40 * kMiB));
    EXPECT_EQ(take_private(memory, 7, 4096)->size, 2 * kMiB);
    EXPECT_EQ(take_captured(memory, 7, 4096)->size, 4096);
    memory.release_pool(7, graph_first);
    memory.empty_cache();
    EXPECT_EQ(memory.reserved(), 84 * kMiB);
    memory.release_pool(7, !graph_first);
    EXPECT_EQ(memory.reserved(), 4 * kMiB);
  }
}

// A small block that is not split is larger than any that is kept by size.
TEST(PrivatePool, UsesASmallBlockAgainThatIsNotSplit) {
  Memory memory;
  memory.hold_pool(7, {false, false});
  Block* const first = take_private(memory, 7, 4096);
  void* const address = first->ptr;
  for (int i = 0; i < 4; ++i) {
    memory.free(i ? take_private(memory, 7, 512) : first);
    EXPECT_EQ(memory.reserved(), 2 * kMiB);
    EXPECT_EQ(memory.stats()["allocated_bytes.small_pool.current"], 0);
    EXPECT_EQ(memory.stats()["allocated_bytes.large_pool.current"], 0);
  }
  EXPECT_TRUE(take_private(memory, 7, 4096)->ptr == address);
}

TEST(GraphPool, TakesTheMemoryOfItsCapturesFromItsOwnSegments) {
  Memory memory({7});
  take_and_free(memory, 4096);
  memory.begin_capture(first_stream(), 7);
  void* address = take_and_free(memory, 4096);
  EXPECT_EQ(pool_of(memory, address), 7);
  EXPECT_EQ(memory.reserved(), 4 * kMiB);
  EXPECT_TRUE(take(memory, 4096)->ptr == address);
  memory.end_capture(first_stream());
  Block* after = take(memory, 4096);
  EXPECT_EQ(pool_of(memory, after->ptr), 0);
  EXPECT_TRUE(take(memory, 4096, second_stream())->ptr != address);
}

// Memory that is in use when the graphs are gone is ordinary memory from then
// on, and the stream's next capture takes the pool over.
TEST(GraphPool, ThatIsFreedLeavesWhatIsInUse) {
  Memory memory({7});
  memory.begin_capture(first_stream(), 7);
  memory.free(take(memory, 12 * kMiB));
  memory.free(take(memory, 4096));
  Block* used = take(memory, 40 * kMiB);
  void* address = used->ptr;
  memory.end_capture(first_stream());
  memory.empty_cache();
  memory.release_pool(8, false);  // of nobody
  EXPECT_EQ(memory.reserved(), 54 * kMiB);
  memory.release_pool(7, false);
  EXPECT_EQ(memory.reserved(), 40 * kMiB);
  EXPECT_TRUE(memory.find(address) == used);
  memory.free(used);
  memory.hold_pool(9);
  Block* const taken_over = take_captured(memory, 9, 40 * kMiB);
  EXPECT_TRUE(taken_over->ptr == address);
  memory.free(take_captured(memory, 9, 40 * kMiB, second_stream()));
  memory.release_pool(9, false);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 40 * kMiB);  // the first one's, in use
  memory.free(taken_over);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

// No queue orders captured work, so memory that two streams have used is not
// used again before the last capture has ended.
TEST(GraphPool, KeepsWhatTwoStreamsUsedUntilTheLastCaptureEnds) {
  Memory memory({7});
  memory.begin_capture(first_stream(), 7);
  memory.begin_capture(second_stream(), 7);
  Block* shared = take(memory, 4000);
  void* address = shared->ptr;
  memory.record_stream(shared, second_stream());
  memory.free(shared);
  EXPECT_EQ(memory.allocated(), 0);
  EXPECT_EQ(memory.stats()["active_bytes.all.current"], 4096);
  Block* early = take(memory, 4000);
  EXPECT_TRUE(early->ptr != address);
  memory.end_capture(second_stream());
  EXPECT_EQ(memory.stats()["active_bytes.all.current"], 2 * 4096);
  memory.end_capture(first_stream());
  auto stats = memory.stats();
  EXPECT_EQ(stats["active_bytes.all.current"], 4096);
  EXPECT_EQ(stats["active.all.current"], 1);
  EXPECT_EQ(stats["requested_bytes.all.current"], 4000);
  memory.begin_capture(first_stream(), 7);
  EXPECT_TRUE(take(memory, 4000)->ptr == address);
  memory.end_capture(first_stream());
}

// Outside of captures the same memory waits for the other stream's queue.
TEST(GraphPool, WaitsForTheOtherStreamAfterTheCapture) {
  Memory memory({7});
  Block* block = take_captured(memory, 7, 4096);
  memory.record_stream(block, second_stream());
  memory.free(block);  // nothing is queued there
  EXPECT_EQ(memory.stats()["active_bytes.all.current"], 0);
}

// A pool that the stream serves by name goes on doing so while it captures.
TEST(GraphPool, LeavesTheStreamsOtherPoolsAsTheyAre) {
  Memory memory({7, 8});
  Block* own = take_private(memory, 7, 4096);
  void* const address = own->ptr;
  memory.free(own);
  memory.begin_capture(first_stream(), 8);
  own = take_private(memory, 7, 4096);
  EXPECT_TRUE(own->ptr == address);
  EXPECT_EQ(pool_of(memory, take(memory, 4096)->ptr), 8);
  memory.free(own);
  memory.end_capture(first_stream());
  EXPECT_TRUE(take_private(memory, 7, 4096)->ptr == address);
}

}  // namespace
}  // namespace npu
