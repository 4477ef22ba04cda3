#include <atomic>
#include <thread>
#include <vector>

#include "csrc/stats/segment.h"
#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using check::drain;

using namespace check;

// Queues a task that holds the stream until the gate opens.
void hold(Stream& stream, Gate& gate) {
  submit(stream, kGate, {word(&gate)});
  gate.wait_until_entered();
}

// Returns when somebody waits for all of the stream's work, or when `done` is
// set.
void wait_until_awaited(Stream& stream, const std::atomic<bool>& done) {
  while (stream.retired().wanted() < stream.tail() && !done)
    std::this_thread::yield();
}

// words: Gate*, address
int run_late_write(const npu_kernel*, const uint64_t* words, npu_failure*) {
  reinterpret_cast<Gate*>(words[0])->pass();
  *reinterpret_cast<uint64_t*>(words[1]) = 1;
  return NPU_OK;
}
constexpr npu_kernel kLateWrite{run_late_write, "test::late", nullptr, 0};

TEST(RecordStream, KeepsAFreedBlockUntilTheOtherStreamIsDone) {
  for (size_t bytes : {4096ul, 12 * kMiB}) {
    auto memory = make_allocator();
    Gate gate;
    Block* block = take(memory, bytes, first_stream());
    void* address = block->ptr;
    hold(second_stream(), gate);
    memory.record_stream(block, second_stream());
    memory.free(block);

    Block* early = take(memory, bytes, first_stream());
    EXPECT_TRUE(early->ptr != address);
    gate.open();
    drain(second_stream());
    Block* late = take(memory, bytes, first_stream());

    EXPECT_TRUE(late->ptr == address);
  }
}

// Two streams use a block, and one of them is done. What was noted of that one
// is used again for other blocks, and the block still waits for the other.
TEST(RecordStream, WaitsForTheStreamThatIsLeftWhateverIsRecordedMeanwhile) {
  Stream& third = *find_stream(0, int64_t(StreamPool::kNormal) << 5 | 1);
  for (const bool second_ends_first : {false, true}) {
    auto memory = make_allocator();
    Gate ending, staying;
    Stream& ends = second_ends_first ? second_stream() : third;
    Stream& stays = second_ends_first ? third : second_stream();
    Block* block = take(memory, 4096, first_stream());
    void* const address = block->ptr;
    hold(ends, ending);
    hold(stays, staying);
    memory.record_stream(block, second_stream());
    memory.record_stream(block, third);
    memory.free(block);
    ending.open();
    drain(ends);
    EXPECT_TRUE(take(memory, 4096, first_stream())->ptr != address);

    Block* const others[] = {take(memory, 8192, first_stream()),
                             take(memory, 8192, first_stream())};
    for (Block* other : others) memory.record_stream(other, ends);
    for (Block* other : others) memory.free(other);
    EXPECT_TRUE(take(memory, 4096, first_stream())->ptr != address);
    staying.open();
    drain(stays);
    EXPECT_TRUE(take(memory, 4096, first_stream())->ptr == address);
  }
}

TEST(RecordStream, CountsWorkQueuedUpToTheFreeAndNoLater) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 4096, first_stream());
  void* address = block->ptr;
  memory.record_stream(block, second_stream());
  submit(second_stream(), kNothing, {});
  drain(second_stream());

  memory.free(block);
  hold(second_stream(), gate);

  EXPECT_TRUE(take(memory, 4096, first_stream())->ptr == address);
  gate.open();
  drain(second_stream());
}

TEST(RecordStream, OfTheBlocksOwnStreamChangesNothing) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 4096, first_stream());
  void* address = block->ptr;
  memory.record_stream(block, first_stream());
  hold(first_stream(), gate);
  memory.free(block);

  EXPECT_TRUE(take(memory, 4096, first_stream())->ptr == address);
  gate.open();
  drain(first_stream());
}

TEST(RecordStream, APendingBlockIsActiveButNotAllocated) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 4000, first_stream());
  hold(second_stream(), gate);
  memory.record_stream(block, second_stream());
  memory.record_stream(block, second_stream());
  memory.free(block);

  auto stats = memory.stats();
  const auto segments = memory.snapshot();

  EXPECT_EQ(stats["allocated_bytes.all.current"], 0);
  EXPECT_EQ(stats["active_bytes.all.current"], 4096);
  EXPECT_EQ(stats["active.small_pool.current"], 1);
  EXPECT_EQ(stats["requested_bytes.all.current"], 4000);
  EXPECT_EQ(segments[0].active, 4096);
  EXPECT_EQ(segments[0].allocated, 0);
  EXPECT_TRUE(segments[0].blocks[0].state == BlockInfo::State::kPendingFree);
  gate.open();
  drain(second_stream());
  stats = memory.stats();
  EXPECT_EQ(stats["active_bytes.all.current"], 0);
  EXPECT_EQ(stats["active_bytes.all.freed"], 4096);
}

TEST(RecordStream, TheActivePeakCoversPendingBlocks) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 4096, first_stream());
  hold(second_stream(), gate);
  memory.record_stream(block, second_stream());
  memory.free(block);
  memory.free(take(memory, 1024, first_stream()));
  gate.open();
  drain(second_stream());

  auto stats = memory.stats();

  EXPECT_EQ(stats["active_bytes.all.peak"], 5120);
  EXPECT_EQ(stats["active.all.peak"], 2);
  EXPECT_EQ(stats["allocated_bytes.all.peak"], 4096);
}

TEST(RecordStream, TheActivePeakForgetsWhatWasFreedBefore) {
  auto memory = make_allocator();
  Gate gate;
  memory.free(take(memory, 64 * kKiB, first_stream()));
  hold(second_stream(), gate);
  for (int i = 0; i < 2; ++i) {
    Block* block = take(memory, 4 * kKiB, first_stream());
    memory.record_stream(block, second_stream());
    memory.free(block);
  }
  gate.open();
  drain(second_stream());

  EXPECT_EQ(memory.stats()["active_bytes.all.peak"], 64 * kKiB);
  EXPECT_EQ(segment().devices[0].allocated_peak.load(), 64 * kKiB);
}

TEST(RecordStream, ThatIsTakenBackIsNotWaitedFor) {
  Stream& third = *find_stream(0, (int64_t(StreamPool::kNormal) << 5) + 1);
  for (const bool both : {false, true}) {
    auto memory = make_allocator();
    Gate gate;
    Block* block = take(memory, 4096, first_stream());
    void* address = block->ptr;
    hold(second_stream(), gate);
    memory.record_stream(block, second_stream());
    memory.record_stream(block, third);
    memory.erase_stream(block, third);
    memory.erase_stream(block, first_stream());  // never recorded
    if (both) memory.erase_stream(block, second_stream());
    memory.free(block);
    EXPECT_EQ(take(memory, 4096, first_stream())->ptr == address, both);
    gate.open();
    drain(second_stream());
  }
}

// A block that waits for a slow stream does not hold up those behind it.
TEST(RecordStream, LooksAtPendingBlocksInTurn) {
  Stream& third = *find_stream(0, (int64_t(StreamPool::kNormal) << 5) + 1);
  auto memory = make_allocator();
  Gate slow, fast;
  hold(second_stream(), slow);
  hold(third, fast);
  std::vector<Block*> blocks;
  for (int i = 0; i < 6; ++i)
    blocks.push_back(take(memory, 4096, first_stream()));
  const uint64_t deferred = first_stream().block().deferred_bytes.load();
  for (int i = 0; i < 6; ++i) {
    memory.record_stream(blocks[size_t(i)], i < 5 ? second_stream() : third);
    memory.free(blocks[size_t(i)]);
  }
  EXPECT_EQ(first_stream().block().deferred_bytes.load(), deferred + 6 * 4096);
  void* address = blocks[5]->ptr;
  fast.open();
  drain(third);
  // Each allocation from the cache looks at four pending blocks, so the second
  // one looks at the fifth.
  for (int i = 0; i < 2; ++i) memory.free(take(memory, 512, first_stream()));
  EXPECT_TRUE(take(memory, 4096, first_stream())->ptr == address);
  EXPECT_EQ(first_stream().block().deferred_bytes.load(), deferred + 5 * 4096);
  slow.open();
  drain(second_stream());
  memory.stats();
  EXPECT_EQ(first_stream().block().deferred_bytes.load(), deferred);
}

TEST(RecordStream, EmptyCacheWaitsForPendingBlocks) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 4096, first_stream());
  hold(second_stream(), gate);
  memory.record_stream(block, second_stream());
  memory.free(block);
  std::atomic<bool> emptied{false};
  std::jthread emptying([&] {
    memory.empty_cache();
    emptied = true;
  });

  wait_until_awaited(second_stream(), emptied);
  EXPECT_TRUE(!emptied);
  EXPECT_EQ(memory.reserved(), 2 * kMiB);
  gate.open();
  emptying.join();

  EXPECT_EQ(memory.reserved(), 0);
}

TEST(Release, WaitsForQueuedTasksThatStillWriteToTheSegment) {
  auto memory = make_allocator();
  Gate gate;
  Block* block = take(memory, 12 * kMiB, first_stream());
  submit(first_stream(), kLateWrite, {word(&gate), word(block->ptr)});
  gate.wait_until_entered();
  memory.free(block);
  std::atomic<bool> emptied{false};
  std::jthread emptying([&] {
    memory.empty_cache();
    emptied = true;
  });

  wait_until_awaited(first_stream(), emptied);
  EXPECT_TRUE(!emptied);
  EXPECT_TRUE(memory.reserved() >= 12 * kMiB);
  gate.open();
  emptying.join();

  EXPECT_EQ(memory.reserved(), 0);
}

TEST(Release, LeavesSegmentsWithABlockInUse) {
  auto memory = make_allocator();
  Block* kept = take(memory, 512, first_stream());
  memory.free(take(memory, 512, first_stream()));
  memory.free(take(memory, 30 * kMiB, first_stream()));

  memory.empty_cache();

  EXPECT_EQ(memory.reserved(), 2 * kMiB);
  memory.free(kept);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

}  // namespace
}  // namespace npu
