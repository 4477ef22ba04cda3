// Memory whose free is noted for an observer that does not own it.
#include "csrc/memory/watch.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

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
  Block* before = take(memory(), 4096, first_stream());
  Block* block = take(memory(), 4096, first_stream());
  Block* after = take(memory(), 4096, first_stream());
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
  Block* block = take(memory(), 4096, first_stream());
  Watched w;
  EXPECT_TRUE(watch_memory(block->ptr, 0, w.one));
  EXPECT_TRUE(watch_memory(block->ptr, 0, w.other));
  unwatch_memory(w.one);
  unwatch_memory(w.one);
  memory().free(block);

  EXPECT_TRUE(w.other.ended && !w.one.ended);
  unwatch_memory(w.other);
  for (int i = 0; i < 3; ++i) {
    Block* next = take(memory(), 4096, first_stream());
    memory().record_stream(next, second_stream());
    memory().free(next);
  }
  drain(second_stream());
  EXPECT_TRUE(!w.one.ended);
}

TEST(Watch, NotesTheFreeOfABlockThatAnotherStreamUses) {
  Block* block = take(memory(), 4096, first_stream());
  void* const address = block->ptr;
  Watched w;
  EXPECT_TRUE(watch_memory(address, 0, w.one));
  EXPECT_TRUE(memory().take_use(block) == nullptr);
  memory().record_stream(block, second_stream());
  EXPECT_TRUE(memory().take_use(block) == &second_stream());
  memory().free(block);

  EXPECT_TRUE(w.one.ended > 0);
  EXPECT_TRUE(take(memory(), 4096, first_stream())->ptr == address);
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
  Block* block = take(memory(), 4096, first_stream());
  void* const address = block->ptr;
  memory().free(block);
  Watched w;
  EXPECT_TRUE(watch_memory(address, 0, w.one));
  EXPECT_TRUE(w.one.ended > 0 && w.first == w.one.ended);
}

// Blocks that were freed into a graphs' pool hold what the graphs leave each
// other, until the pool is gone.
TEST(Watch, MemoryOfAGraphPoolEndsWithItsTensorAndThePool) {
  const auto captured = [](uint64_t pool) {
    memory().begin_capture(first_stream(), pool);
    Block* block = take(memory(), 4096, first_stream());
    memory().end_capture(first_stream());
    return block;
  };
  Block* freed_first = captured(7);
  Watched w;
  EXPECT_TRUE(!watch_memory(freed_first->ptr, 7, w.one));
  EXPECT_TRUE(watch_memory(freed_first->ptr, 8, w.one));
  memory().free(freed_first);
  EXPECT_TRUE(!w.one.ended);
  memory().free_pool(7);
  EXPECT_TRUE(w.one.ended > 0);

  Block* freed_last = captured(9);
  EXPECT_TRUE(watch_memory(freed_last->ptr, 0, w.other));
  memory().free_pool(9);
  EXPECT_TRUE(!w.other.ended);
  // The next capture takes the pool over, but not the tensor.
  Block* of_the_next = captured(10);
  memory().free(freed_last);
  EXPECT_TRUE(w.other.ended > 0);
  memory().free(of_the_next);
  memory().free_pool(10);
}

TEST(Watch, OneThreadFreesWhileAnotherStopsToWatch) {
  for (int round = 0; round < 500; ++round) {
    Block* block = take(memory(), 4096, first_stream());
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
