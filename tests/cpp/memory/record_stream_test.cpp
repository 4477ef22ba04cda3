// Blocks that other streams use, and whose free is noted for somebody who does
// not own them.
#include "csrc/memory/watch.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

Stream& third_stream() {
  return *find_stream(0, int64_t(StreamPool::kNormal) << 5 | 1);
}

// A block that the second stream, which is held, uses, and that is freed.
struct Pending {
  explicit Pending(size_t bytes = 4096) {
    block = take(memory, bytes);
    address = block->ptr;
    hold(second_stream(), gate);
    memory.record_stream(block, second_stream());
    memory.free(block);
  }
  void go_on() { drain(second_stream(), gate); }
  Memory memory;
  Gate gate;
  Block* block;
  void* address;
};

// Returns when somebody waits for all of the stream's work, or when `done` is
// set.
void wait_until_awaited(Stream& stream, const std::atomic<bool>& done) {
  while (stream.retired().wanted() < stream.tail() && !done)
    std::this_thread::yield();
}

TEST(RecordStream, KeepsAFreedBlockUntilTheOtherStreamIsDone) {
  for (size_t bytes : {4096ul, 12 * kMiB}) {
    Pending p(bytes);
    const auto segments = p.memory.snapshot();
    EXPECT_EQ(segments[0].active, bytes);
    EXPECT_EQ(segments[0].allocated, 0);
    EXPECT_TRUE(segments[0].blocks[0].state == BlockInfo::State::kPendingFree);
    EXPECT_TRUE(take(p.memory, bytes)->ptr != p.address);
    p.go_on();
    EXPECT_TRUE(take(p.memory, bytes)->ptr == p.address);
  }
}

// Two streams use a block, and one of them is done. What was noted of that one
// is used again for other blocks, and the block still waits for the other.
TEST(RecordStream, WaitsForTheStreamThatIsLeftWhateverIsRecordedMeanwhile) {
  for (const bool second_ends_first : {false, true}) {
    Memory memory;
    Gate ending, staying;
    Stream& ends = second_ends_first ? second_stream() : third_stream();
    Stream& stays = second_ends_first ? third_stream() : second_stream();
    Block* block = take(memory, 4096);
    void* const address = block->ptr;
    hold(ends, ending);
    hold(stays, staying);
    memory.record_stream(block, second_stream());
    memory.record_stream(block, third_stream());
    memory.free(block);
    drain(ends, ending);
    EXPECT_TRUE(take(memory, 4096)->ptr != address);

    Block* const others[] = {take(memory, 8192), take(memory, 8192)};
    for (Block* other : others) memory.record_stream(other, ends);
    for (Block* other : others) memory.free(other);
    EXPECT_TRUE(take(memory, 4096)->ptr != address);
    drain(stays, staying);
    EXPECT_TRUE(take(memory, 4096)->ptr == address);
  }
}

// Nor what is queued on the block's own stream before it.
TEST(RecordStream, DoesNotCountWorkQueuedAfterTheFree) {
  for (const bool own : {false, true}) {
    Memory memory;
    Gate gate;
    Stream& user = own ? first_stream() : second_stream();
    Block* block = take(memory, 4096);
    void* address = block->ptr;
    memory.record_stream(block, user);
    submit(user, kNothing, {});
    drain(user);

    if (own) hold(user, gate);
    memory.free(block);
    if (!own) hold(user, gate);

    EXPECT_TRUE(take(memory, 4096)->ptr == address);
    drain(user, gate);
  }
}

TEST(RecordStream, TheActivePeakForgetsWhatWasFreedBefore) {
  Memory memory;
  Gate gate;
  memory.free(take(memory, 64 * kKiB));
  hold(second_stream(), gate);
  for (int i = 0; i < 2; ++i) {
    Block* block = take(memory, 4 * kKiB);
    memory.record_stream(block, second_stream());
    memory.free(block);
  }
  drain(second_stream(), gate);

  EXPECT_EQ(memory.stats()["active_bytes.all.peak"], 64 * kKiB);
  EXPECT_EQ(segment().devices[0].allocated_peak.load(), 64 * kKiB);
}

// A block that waits for a slow stream does not hold up those behind it.
TEST(RecordStream, LooksAtPendingBlocksInTurn) {
  Stream& third = third_stream();
  Memory memory;
  Gate slow, fast;
  hold(second_stream(), slow);
  hold(third, fast);
  std::vector<Block*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(take(memory, 4096));
  const uint64_t deferred = first_stream().block().deferred_bytes.load();
  for (int i = 0; i < 6; ++i) {
    memory.record_stream(blocks[size_t(i)], i < 5 ? second_stream() : third);
    memory.free(blocks[size_t(i)]);
  }
  EXPECT_EQ(first_stream().block().deferred_bytes.load(), deferred + 6 * 4096);
  void* address = blocks[5]->ptr;
  drain(third, fast);
  // Each allocation from the cache looks at four pending blocks, so the second
  // one looks at the fifth.
  for (int i = 0; i < 2; ++i) memory.free(take(memory, 512));
  EXPECT_TRUE(take(memory, 4096)->ptr == address);
  EXPECT_EQ(first_stream().block().deferred_bytes.load(), deferred + 5 * 4096);
  drain(second_stream(), slow);
  memory.stats();
  EXPECT_EQ(first_stream().block().deferred_bytes.load(), deferred);
}

// Empties the cache while a stream is held, which `memory` has to wait for.
void expect_waits_for(Stream& stream, CachingAllocator& memory, Gate& gate) {
  std::atomic<bool> emptied{false};
  const uint64_t reserved = memory.reserved();
  std::jthread emptying([&] {
    memory.empty_cache();
    emptied = true;
  });
  wait_until_awaited(stream, emptied);
  EXPECT_TRUE(!emptied);
  EXPECT_EQ(memory.reserved(), reserved);
  gate.open();
  emptying.join();
  EXPECT_EQ(memory.reserved(), 0);
}

TEST(Release, WaitsForPendingBlocks) {
  Pending p;
  expect_waits_for(second_stream(), p.memory, p.gate);
}

TEST(Release, WaitsForQueuedTasksThatStillWriteToTheSegment) {
  Memory memory;
  Gate gate;
  Block* block = take(memory, 12 * kMiB);
  const std::function<void()> write_late = [&, at = block->ptr] {
    gate.pass();
    *static_cast<uint64_t*>(at) = 1;
  };
  submit(first_stream(), kCall, {word(&write_late)});
  gate.wait_until_entered();
  memory.free(block);
  expect_waits_for(first_stream(), memory, gate);
}

TEST(Release, LeavesSegmentsWithABlockInUse) {
  Memory memory;
  Block* kept = take(memory, 512);
  memory.free(take(memory, 512));
  memory.free(take(memory, 30 * kMiB));

  memory.empty_cache();

  EXPECT_EQ(memory.reserved(), 2 * kMiB);
  memory.free(kept);
  memory.empty_cache();
  EXPECT_EQ(memory.reserved(), 0);
}

// The one whose memory can be watched.
CachingAllocator& memory() { return allocator(0); }

struct Watched {
  std::atomic<uint64_t> first{0};
  MemoryWatch one, other;
  Watched() { one.first_ended = other.first_ended = &first; }
  ~Watched() {
    unwatch_memory(one);
    unwatch_memory(other);
  }
};

const void* inside(const Block* block, size_t offset) {
  return static_cast<const char*>(block->ptr) + offset;
}

TEST(Watch, NotesTheFreeOfTheBlockThatHoldsTheAddress) {
  Block* before = take(memory(), 4096);
  Block* block = take(memory(), 4096);
  Block* after = take(memory(), 4096);
  Watched w;
  EXPECT_TRUE(watch_memory(inside(block, 4095), 0, w.one));
  EXPECT_TRUE(watch_memory(block->ptr, 0, w.other));

  memory().free(before);
  memory().free(after);
  EXPECT_TRUE(!w.first && !w.one.ended && !w.other.ended);
  const uint64_t ends = memory_ends_noted();
  memory().free(block);

  EXPECT_TRUE(w.one.ended > ends && w.other.ended > ends);
  EXPECT_EQ(memory_ends_noted(), ends + 2);
  EXPECT_EQ(w.first, ends + 1);
}

TEST(Watch, AWatchThatHasEndedNotesNothing) {
  Block* block = take(memory(), 4096);
  Watched w;
  EXPECT_TRUE(watch_memory(block->ptr, 0, w.one));
  EXPECT_TRUE(watch_memory(block->ptr, 0, w.other));
  unwatch_memory(w.one);
  unwatch_memory(w.one);
  memory().free(block);

  EXPECT_TRUE(w.other.ended && !w.one.ended);
  unwatch_memory(w.other);
  for (int i = 0; i < 3; ++i) {
    Block* next = take(memory(), 4096);
    memory().record_stream(next, second_stream());
    memory().free(next);
  }
  drain(second_stream());
  EXPECT_TRUE(!w.one.ended);
}

TEST(Watch, NotesTheFreeOfABlockThatAnotherStreamUses) {
  Block* block = take(memory(), 4096);
  void* const address = block->ptr;
  Watched w;
  EXPECT_TRUE(watch_memory(address, 0, w.one));
  EXPECT_TRUE(memory().take_use(block) == nullptr);
  memory().record_stream(block, second_stream());
  EXPECT_TRUE(memory().take_use(block) == &second_stream());
  memory().free(block);

  EXPECT_TRUE(w.one.ended > 0);
  EXPECT_TRUE(take(memory(), 4096)->ptr == address);
}

TEST(Watch, NotesTheFreeOfMemoryThatNoAllocatorOfADeviceOwns) {
  const char page[4096] = {};
  Watched w;
  EXPECT_TRUE(watch_memory(page + 100, 0, w.one));
  EXPECT_TRUE(watch_memory(page + 4095, 0, w.other));
  memory_freed(page, 100);
  memory_freed(page + 101, 100);
  EXPECT_TRUE(!w.first);
  memory_freed(page, 101);
  EXPECT_TRUE(w.one.ended && !w.other.ended);
  memory_freed(page + 4095, 1);
  EXPECT_TRUE(w.other.ended > w.one.ended);
}

TEST(Watch, DeviceMemoryThatIsFreeHasEnded) {
  void* address = take_and_free(memory(), 4096);
  Watched w;
  EXPECT_TRUE(watch_memory(address, 0, w.one));
  EXPECT_TRUE(w.one.ended > 0 && w.first == w.one.ended);
}

// Blocks that were freed into a graphs' pool hold what the graphs leave each
// other, until the pool is gone.
TEST(Watch, MemoryOfAGraphPoolEndsWithItsTensorAndThePool) {
  const auto captured = [](uint64_t pool) {
    memory().hold_pool(pool);
    memory().begin_capture(first_stream(), pool);
    Block* block = take(memory(), 4096);
    memory().end_capture(first_stream());
    return block;
  };
  Block* freed_first = captured(7);
  Watched w;
  EXPECT_TRUE(!watch_memory(freed_first->ptr, 7, w.one));
  EXPECT_TRUE(watch_memory(freed_first->ptr, 8, w.one));
  memory().free(freed_first);
  EXPECT_TRUE(!w.one.ended);
  memory().release_pool(7, false);
  EXPECT_TRUE(w.one.ended > 0);

  Block* freed_last = captured(9);
  EXPECT_TRUE(watch_memory(freed_last->ptr, 0, w.other));
  memory().release_pool(9, false);
  EXPECT_TRUE(!w.other.ended);
  // The next capture takes the pool over, but not the tensor.
  Block* of_the_next = captured(10);
  memory().free(freed_last);
  EXPECT_TRUE(w.other.ended > 0);
  memory().free(of_the_next);
  memory().release_pool(10, false);
}

TEST(Watch, OneThreadFreesWhileAnotherStopsToWatch) {
  for (int round = 0; round < 500; ++round) {
    Block* block = take(memory(), 4096);
    Watched w;
    EXPECT_TRUE(watch_memory(block->ptr, 0, w.one));
    EXPECT_TRUE(watch_memory(block->ptr, 0, w.other));
    std::thread frees([&] { memory().free(block); });
    unwatch_memory(w.one);
    frees.join();
    EXPECT_TRUE(w.first && w.other.ended);
  }
}

}  // namespace
}  // namespace npu
