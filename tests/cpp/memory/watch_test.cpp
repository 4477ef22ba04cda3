// Blocks whose end is noted for somebody who does not own them.
#include <atomic>
#include <thread>
#include <vector>

#include "tests/cpp/check.h"
#include "tests/cpp/kernels.h"
#include "tests/cpp/memory/allocator_fixture.h"

namespace npu {
namespace {

using namespace check;

struct Watched {
  std::atomic<bool> any{false};
  BlockWatch one, other;
  Watched() { one.any_ended = other.any_ended = &any; }
};

const void* inside(const Block* block, size_t offset) {
  return static_cast<const char*>(block->ptr) + offset;
}

TEST(Watch, NotesTheFreeOfTheBlockThatHoldsTheAddress) {
  auto memory = make_allocator();
  Block* before = take(memory, 4096, first_stream());
  Block* block = take(memory, 4096, first_stream());
  Block* after = take(memory, 4096, first_stream());
  Watched w;
  EXPECT_TRUE(memory.watch(inside(block, 4095), w.one));
  EXPECT_TRUE(memory.watch(block->ptr, w.other));

  memory.free(before);
  memory.free(after);
  EXPECT_TRUE(!w.any && !w.one.ended && !w.other.ended);
  memory.free(block);

  EXPECT_TRUE(w.any && w.one.ended && w.other.ended);
}

TEST(Watch, WhoHasLeftIsNotTold) {
  auto memory = make_allocator();
  Block* block = take(memory, 4096, first_stream());
  Watched w;
  EXPECT_TRUE(memory.watch(block->ptr, w.one));
  EXPECT_TRUE(memory.watch(block->ptr, w.other));
  memory.unwatch(w.one);
  memory.unwatch(w.one);
  memory.free(block);

  EXPECT_TRUE(w.other.ended && !w.one.ended);
  memory.unwatch(w.other);
  // What was noted is used again, and is of no watch then.
  for (int i = 0; i < 3; ++i) {
    Block* next = take(memory, 4096, first_stream());
    memory.record_stream(next, second_stream());
    memory.free(next);
  }
  drain(second_stream());
  EXPECT_TRUE(!w.one.ended);
}

TEST(Watch, IsNoUseByAnotherStream) {
  auto memory = make_allocator();
  Block* block = take(memory, 4096, first_stream());
  void* const address = block->ptr;
  Watched w;
  EXPECT_TRUE(memory.watch(address, w.one));
  EXPECT_TRUE(memory.take_use(block) == nullptr);
  memory.record_stream(block, second_stream());
  EXPECT_TRUE(memory.watch(address, w.other));
  EXPECT_TRUE(memory.take_use(block) == &second_stream());
  EXPECT_TRUE(memory.take_use(block) == nullptr);
  memory.free(block);

  EXPECT_TRUE(w.one.ended && w.other.ended);
  EXPECT_TRUE(take(memory, 4096, first_stream())->ptr == address);
}

TEST(Watch, KnowsNothingOfOtherMemory) {
  auto memory = make_allocator();
  Block* block = take(memory, 4096, first_stream());
  void* const address = block->ptr;
  Watched w;
  int on_the_host = 0;
  EXPECT_TRUE(!memory.watch(&on_the_host, w.one));
  memory.free(block);
  EXPECT_TRUE(!memory.watch(address, w.one));
  memory.begin_capture(first_stream(), 7);
  Block* own = take(memory, 4096, first_stream());
  EXPECT_TRUE(!memory.watch(own->ptr, w.one));
  memory.end_capture(first_stream());
  memory.free(own);

  EXPECT_TRUE(!w.any);
}

TEST(Watch, OneThreadFreesWhileAnotherLeaves) {
  auto memory = make_allocator();
  for (int round = 0; round < 500; ++round) {
    Block* block = take(memory, 4096, first_stream());
    Watched w;
    EXPECT_TRUE(memory.watch(block->ptr, w.one));
    EXPECT_TRUE(memory.watch(block->ptr, w.other));
    std::thread frees([&] { memory.free(block); });
    memory.unwatch(w.one);
    frees.join();
    EXPECT_TRUE(w.any && w.other.ended);
  }
}

}  // namespace
}  // namespace npu
