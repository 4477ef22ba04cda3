// The host has no thread or no memory for the work.
#include <string>
#include <thread>

#include "csrc/engine/engine.h"
#include "csrc/memory/caching_allocator.h"
#include "tests/cpp/no_memory.h"
#include "tests/cpp/no_threads.h"
#include "tests/cpp/states/conditions.h"
#include "tests/drivers/by_hand.h"

namespace npu::states {
namespace {

void expect_refused(const Cell& cell, const std::string& text) {
  EXPECT_EQ(cell.launched.as.load(), As::kThrew);
  EXPECT_TRUE(std::string(cell.launched.text).find(text) != std::string::npos);
}

// A launch that was refused has changed nothing.
void expect_untouched(Cell& cell) {
  for (Stream* s : cell.streams) EXPECT_TRUE(!s->failed());
  EXPECT_EQ(cell.handed_over.load(), cell.released.load());
  cell.expect_nothing_ran();
}

// Waits without asking for memory.
void wait_for_queues(const Cell& cell) {
  for (Stream* s : cell.streams)
    while (!s->idle()) std::this_thread::yield();
}

// The launch is refused, gives its result, or fails as it says; and the next
// one gives the right result.
constexpr int kHadMemory = 77;  // an exit code
void launch_without_memory(Cell& cell, long spared, bool once, int code) {
  cell.code = code;
  bool failed;
  {
    const Device device;
    {
      const check::NoNew none(spared, once);
      cell.launch();
      wait_for_queues(cell);
      failed = check::NoNew::has_failed();
    }
    cell.settle();
  }
  if (cell.launched.as == As::kThrew) {
    expect_untouched(cell);
    cell.launch_again();
  } else if (cell.stream().failed()) {
    EXPECT_TRUE(code != NPU_OK || !cell.stream().error()->text.empty());
    if (code != NPU_OK && !failed) EXPECT_EQ(cell.stream().error()->code, code);
    cell.expect_nothing_ran();
    cell.recover();
  } else {
    EXPECT_EQ(code, NPU_OK);
    cell.expect_result();
    cell.launch_again();
  }
  if (!failed) exit(kHadMemory);
}

// Takes the memory away before each call of operator new, one after another.
void sweep(const Way& way, int code) {
  for (const bool once : {true, false})
    for (long spared = 0;; ++spared) {
      const auto ended = in_process(way, [&](Cell& cell) {
        launch_without_memory(cell, spared, once, code);
      });
      if (ended.code == kHadMemory && ended.err.empty()) break;
      expect_clean(ended, std::string(way.name) + ", allocation " +
                              std::to_string(spared) +
                              (once ? "" : " and later ones"));
      if (ended.code != 0) break;
    }
}

}  // namespace

void no_thread(Cell& cell) {
  const Device device;
  {
    const check::NoThreads none;
    cell.launch();
  }
  if (cell.way.queued) {
    expect_refused(cell, "no thread can be had");
    expect_untouched(cell);
    EXPECT_EQ(cell.stream().tail(), 0);
  } else {
    cell.settle();
    cell.expect_result();
  }
  cell.launch_again();
}

void no_memory_for_arguments(Cell& cell) {
  {
    const check::NoMemory none;
    cell.launch();
  }
  expect_refused(cell, "no host memory for the");
  expect_untouched(cell);
  cell.launch_again();
}

void no_memory_at_any_point(const Way& way) { sweep(way, NPU_OK); }
void no_memory_while_it_fails(const Way& way) { sweep(way, NPU_VALUE_ERROR); }

namespace {

constexpr size_t kTotal = size_t{256} << 20;

CachingAllocator& memory() {
  static auto* const instance = [] {
    setenv("NPU_DISPATCH_MEMORY", std::to_string(kTotal).c_str(), 1);
    return new CachingAllocator(0);
  }();
  return *instance;
}

}  // namespace

void no_device_memory(Cell& cell) {
  OutOfMemory why;
  EXPECT_TRUE(!memory().allocate(2 * kTotal, cell.stream(), why));
  EXPECT_TRUE(why.message().find("out of memory") != std::string::npos);
  expect_untouched(cell);
  Block* const block = memory().allocate(kTotal, cell.stream(), why);
  EXPECT_TRUE(block != nullptr);
  EXPECT_TRUE(!memory().allocate(kTotal, cell.stream(), why));
  cell.launch_again();
  memory().free(block);
}

// All memory is in use by the work, and was freed by its owner: whoever asks
// for it waits for the work.
void device_memory_in_use(Cell& cell) {
  cell.behind_a_kernel = true;
  Stream& owner = current_stream(0);
  OutOfMemory why;
  Block* block = memory().allocate(kTotal, owner, why);
  check::Gate gate;
  if (!is_late()) cell.gate = &gate;
  cell.start();
  if (is_late())
    EXPECT_EQ(by_hand::wait_until_started(1), 1);
  else
    gate.wait_until_entered();
  memory().record_stream(block, cell.stream());
  memory().free(block);
  std::thread asking([&] {
    block = memory().allocate(kTotal, owner, why);
    EXPECT_TRUE(cell.stream().idle());
  });
  const Device device;
  gate.open();
  asking.join();
  EXPECT_TRUE(block != nullptr);
  cell.settle();
  cell.expect_result();
  cell.launch_again();
}

}  // namespace npu::states
